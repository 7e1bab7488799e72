// Inputs and expected outputs of a case as files, so that another program can hold the reference to account:
// <index>.<buffer>.input, and <index>.<buffer>.wanted, .value, .scale of each output, all as doubles.
#pragma once
#include <cstdio>
#include <string>
#include <vector>
#include "mskb/buffers.h"

namespace mskb {

inline void dump_numbers(const std::string& path, const std::vector<double>& numbers) {
    FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr ||
        std::fwrite(numbers.data(), sizeof(double), numbers.size(), file) != numbers.size() ||
        std::fclose(file) != 0)
        harness_failure("cannot write " + path);
}

inline void dump(const std::string& folder, int index, const std::vector<BufferSpec>& specs,
                 const std::vector<const void*>& inputs, const std::vector<Expected>& expected) {
    for (size_t i = 0; i < specs.size(); ++i) {
        std::string stem = folder + "/" + std::to_string(index) + "." + specs[i].name;
        if (specs[i].is_read()) {
            std::vector<double> numbers(specs[i].length);
            for (size_t e = 0; e < numbers.size(); ++e)
                numbers[e] = element(inputs[i], specs[i].kind, e);
            dump_numbers(stem + ".input", numbers);
        }
        if (specs[i].is_written()) {
            dump_numbers(stem + ".wanted", {expected[i].wanted.begin(), expected[i].wanted.end()});
            dump_numbers(stem + ".value", expected[i].value);
            dump_numbers(stem + ".scale", expected[i].scale);
        }
    }
}

} // namespace mskb
