// Cases of a task: their sizes, and those given by hand as "rows=100,nnz=7".
#pragma once
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

// Sizes given by hand, by name; the driver reads them and holds what is left against the card.
class Given;

// Takes one size out of the given ones, or its default; without either, exits with 64.
double take(Given& given, const char* name, const double* fallback);

// The root of a whole number, rounded down.
inline long long isqrt(long long n) {
    long long root = 0;
    for (long long bit = 1LL << 31; bit > 0; bit /= 2)
        if (root + bit <= n / (root + bit)) // whose square may be more than a long long holds
            root += bit;
    return root;
}

} // namespace mskb
