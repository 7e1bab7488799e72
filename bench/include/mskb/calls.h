// The calls of a task's baseline and candidate, given by the rendered harness. A worker that runs but one of them is
// linked to that one alone.
#pragma once
#include <vector>
#include "mskb/case.h"

namespace mskb {

// A pointer to whatever is due: whole numbers of 64 bits have several names, which C++ tells apart and a call does not.
struct AnyPointer {
    void* data;
    template <class T> operator T*() const { return static_cast<T*>(data); }
};

// What the wrapper is called on, in the order of the buffers.
struct Arguments {
    std::vector<void*> buffers;
    template <class T> T* pointer(size_t index) const { return static_cast<T*>(buffers[index]); }
    AnyPointer any(size_t index) const { return {buffers[index]}; }
};

void call_candidate(const Sizes& sizes, const Arguments& device);
void call_baseline(const Sizes& sizes, const Arguments& device) __attribute__((weak));

// Of a vendor's library alone, which keeps a handle and work space between calls: makes ready for calls of these sizes.
// What a candidate defines is local to its object, so it has none.
void prepare_candidate(const Sizes& sizes) __attribute__((weak));

// Of a vendor's library, which may want to look at the inputs of a call first, and of a baseline in PyTorch
// (harness/eager.cpp): takes the buffers of the next call, outside its time.
void bind_candidate(const Sizes& sizes, const Arguments& device) __attribute__((weak));

// Of a baseline in PyTorch alone, which makes its results where it likes: puts into the outputs what the last call made,
// outside its time too.
void finish_candidate() __attribute__((weak));

// A worker's main function; weak, for a judge that starts executables of their own as workers has none.
int work(int argc, char** argv) __attribute__((weak));

} // namespace mskb
