// What a rendered harness says of its task: cases, buffers, inputs, reference. The judge (judge.cu) knows tasks by this
// alone, so it is compiled once for all of them. The calls of baseline and candidate: calls.h.
#pragma once
#include <string>
#include <vector>
#include "mskb/case.h"
#include "mskb/expected.h"
#include "mskb/inputs.h"
#include "mskb/number.h"

namespace mskb {

// kScratch: holds nothing before a call, and what it holds afterwards is nobody's business.
enum class Use { kInput, kOutput, kInOut, kScratch };

// One pointer parameter of the wrapper.
struct BufferSpec {
    const char* name;
    Kind kind;
    long long length; // elements
    Use use;
    bool exact;          // outputs: have to be the value of their type that is nearest the reference's
    long long unit;      // outputs: consecutive elements that the reference makes together
    double cost;         // outputs: operations of the reference for one unit
    long long width;     // outputs: elements of a row where they are a matrix, 0 for a vector
    double sound = 1e-4; // outputs: a baseline further off than this, in units of scale, is wrong
    double ulps = 4;     // outputs: what any kernel may be off by, in ulps of fp32 at the element's scale

    size_t bytes() const { return static_cast<size_t>(length) * bytes_of(kind); }
    bool is_read() const { return use == Use::kInput || use == Use::kInOut; }
    bool is_written() const { return use == Use::kOutput || use == Use::kInOut; }
};

// What outputs are held against.
enum class Truth {
    kReference, // the task's function in C++, in double precision
    kPython,    // a function in Python, in a process of its own (python_reference.h)
    kBaseline,  // what the baseline makes of the same inputs
};

// A size or scalar as a reference in Python gets it: the value that the wrapper gets.
struct Named {
    const char* name;
    double value;
    bool whole;
};

class Task {
  public:
    virtual ~Task() = default;
    virtual const char* name() const = 0;
    virtual const char* precision() const = 0;
    virtual std::vector<Row> rows() const = 0;
    virtual Sizes sizes(Given& given) const = 0; // what is not given takes its default
    virtual std::vector<BufferSpec> buffers(const Sizes& sizes) const = 0;
    virtual void generate(const Sizes& sizes, Inputs& inputs) const = 0;
    virtual Truth truth() const { return Truth::kReference; }
    // Of a task with Truth::kReference.
    virtual void reference(const Sizes&, const std::vector<const void*>&, std::vector<Expected>&) const {}
    // Of one with Truth::kPython: what it gets beside the inputs, and the shape of each buffer, empty for a flat one.
    virtual std::vector<Named> numbers(const Sizes&) const { return {}; }
    virtual std::vector<std::vector<long long>> shapes(const Sizes&) const { return {}; }
};

// The task of this executable, given by the rendered harness.
const Task& task();

} // namespace mskb
