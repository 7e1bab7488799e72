// Sizes of a case, and those given by hand: "rows=100,nnz=7".
#pragma once
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace mskb {

// Every size of the card, in its order. Whole ones are exact up to 2^53.
using Sizes = std::vector<double>;

struct Row {
    std::string label;
    bool sweep; // timed and scored, else only checked
    double weight;
    Sizes sizes;
};

// The root of a whole number, rounded down.
inline long long isqrt(long long n) {
    long long root = 0;
    for (long long bit = 1LL << 31; bit > 0; bit /= 2)
        if ((root + bit) * (root + bit) <= n)
            root += bit;
    return root;
}

// Parses "name=value,..."; exits with 64 and a reason when it can't be read.
inline std::map<std::string, double> parse_case(const std::string& text) {
    std::map<std::string, double> values;
    size_t begin = 0;
    while (begin < text.size()) {
        size_t end = std::min(text.find(',', begin), text.size()), equals = text.find('=', begin);
        char* rest = nullptr;
        if (equals != std::string::npos && equals < end)
            values[text.substr(begin, equals - begin)] = std::strtod(text.c_str() + equals + 1, &rest);
        if (rest == nullptr || rest != text.c_str() + end) {
            std::fprintf(stderr, "--case %s: expected NAME=VALUE,NAME=VALUE\n", text.c_str());
            std::exit(64);
        }
        begin = end + 1;
    }
    return values;
}

// Takes one size out of the parsed ones, or its default; without either, exits with 64.
inline double take(std::map<std::string, double>& values, const char* name, const double* fallback) {
    auto found = values.find(name);
    if (found == values.end() && fallback == nullptr) {
        std::fprintf(stderr, "--case lacks %s\n", name);
        std::exit(64);
    }
    double value = found == values.end() ? *fallback : found->second;
    if (found != values.end())
        values.erase(found);
    return value;
}

} // namespace mskb
