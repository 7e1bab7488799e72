// What the emulated device says of itself: the figures of an H200, so that code written for one takes the
// same paths.
#pragma once

#include <cstddef>

namespace executor {

constexpr int kMultiprocessors = 132; // unless a test asks for fewer: multiprocessors()
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr unsigned kMaxBlockXY = 1024;
constexpr unsigned kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 2147483647u;
constexpr unsigned kMaxGridYZ = 65535;
constexpr std::size_t kReservedShared = 1 << 10;
constexpr std::size_t kSharedPerMultiprocessor = 228 << 10;
constexpr int kL2Bytes = 60 << 20;
constexpr int kPersistingL2Bytes = 37 << 20;
constexpr int kRegisters = 65536;

} // namespace executor
