// What a tensor map holds here: the arguments that it was made of. Code of a kernel never looks inside of one.
#pragma once

#include "cudamaster_cpu/driver.h"

namespace executor {

constexpr unsigned kMostDimensions = 5;
constexpr cuuint64_t kMapMark = 0x6370755f74656e73; // else the memory holds no map

struct TensorMap {
    cuuint64_t mark;
    char* base;
    cuuint64_t strides[kMostDimensions - 1]; // bytes, of the second dimension on
    unsigned last[kMostDimensions];          // index in each dimension
    unsigned short box[kMostDimensions];
    unsigned char steps[kMostDimensions];
    unsigned char rank, type, interleave, swizzle, fill;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "a map has 128 bytes");

// Of an element; 0 for types of packed values, which this device has not.
inline unsigned bytes_of_element(unsigned type) {
    static const unsigned char bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return type < sizeof bytes ? bytes[type] : 0;
}

} // namespace executor
