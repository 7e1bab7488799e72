// The reference in shares, held to the reference as a whole; numbers dealt out in order, held to std::sort.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include "mskb/expected.h"
#include "reference/matrix_power.h"
#include "reference/spmm_csr.h"
#include "reference/triangle_attention.h"

namespace {

void fail(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

std::vector<float> numbers(size_t n) {
    mskb::Rng rng(7, 7, 7);
    std::vector<float> made(n);
    for (float& number : made)
        number = static_cast<float>(rng.uniform(-1, 1));
    return made;
}

// `make` fills in what has to come of `elements` elements, of which units of `unit` are wanted for `budget` operations.
template <class Make>
void hold(const char* name, size_t elements, size_t unit, double cost, double budget, const Make& make) {
    mskb::Rng rng(1, 2, 3);
    mskb::Expected whole(elements, unit, cost, budget, elements, rng);
    make(whole);
    if (!whole.complete())
        fail(name);
    for (size_t count : {1, 2, 3, 7, 16, 40}) {
        mskb::Expected together = whole;
        together.value.assign(whole.value.size(), NAN);
        together.scale.assign(whole.scale.size(), NAN);
        size_t begin = 0;
        for (size_t k = 0; k < count; ++k) {
            mskb::Expected part = whole.share(k, count, unit);
            if (begin > 0 && !part.wanted.empty() && part.wanted[0] / unit == whole.wanted[begin - 1] / unit)
                fail("a unit is in two shares");
            make(part);
            together.take(part, begin);
            begin += part.wanted.size();
        }
        if (begin != whole.wanted.size() || !same(together.value, whole.value) ||
            !same(together.scale, whole.scale))
            fail(name);
    }
    std::fprintf(stderr, "%s: %zu of %zu elements\n", name, whole.wanted.size(), elements);
}

void shares() {
    int rows = 100, columns = 30;
    std::vector<float> values = numbers(1000), right = numbers(1000);
    std::vector<int> offsets(rows + 1), places(1000);
    for (int row = 0; row <= rows; ++row)
        offsets[row] = row * 10;
    for (size_t i = 0; i < places.size(); ++i)
        places[i] = static_cast<int>(i * 7 % 33);
    for (double budget : {1e9, 400.0})
        hold("spmm_csr", rows * columns, 1, 10, budget, [&](mskb::Expected& out) {
            spmm_csr_reference(rows, columns, values.data(), places.data(), offsets.data(), right.data(),
                               out);
        });
    std::vector<float> square = numbers(40 * 40);
    for (double budget : {1e9, 5000.0})
        hold("matrix_power", 40 * 40, 40, 1000, budget,
             [&](mskb::Expected& out) { matrix_power_reference(square.data(), out, 40, 5); });
    std::vector<float> query = numbers(2 * 3 * 20 * 8), mask(2 * 20 * 20);
    for (size_t i = 0; i < mask.size(); ++i)
        mask[i] = i / 20 % 20 < i % 20 ? 1.0f : 0.0f;
    for (double budget : {1e9, 2000.0})
        hold("triangle_attention", query.size(), 8, 100, budget, [&](mskb::Expected& out) {
            triangle_attention_reference(query.data(), query.data(), query.data(), mask.data(), out, 2, 3, 20,
                                         8);
        });
}

// Numbers that are drawn evenly: in order, with the first and the last, one of each part, and elsewhere the next time.
void order() {
    mskb::Rng rng(5, 5, 5);
    for (size_t below : {size_t{7}, size_t{1000}, size_t{1} << 20, (size_t{1} << 40) + 3})
        for (size_t count : {size_t{4}, size_t{6}, size_t{100}, size_t{5000}}) {
            if (count >= below)
                continue;
            std::vector<size_t> one = mskb::spread(count, below, rng),
                                other = mskb::spread(count, below, rng);
            if (one.front() != 0 || one.back() != below - 1)
                fail("without the first or the last");
            if (std::adjacent_find(one.begin(), one.end(), std::greater_equal<size_t>()) != one.end())
                fail("not in order");
            if (one.size() > count || (below > 1000 * count && one.size() + 2 < count))
                fail("too many or too few");
            size_t parts = count - 2, part = (below - 1) / parts + 1;
            for (size_t k = 0; k < parts;
                 ++k) // the first and the last may be there anyway, and two neighbours
                if (std::lower_bound(one.begin(), one.end(), k * (below / parts)) ==
                    std::upper_bound(one.begin(), one.end(), (k + 1) * part))
                    fail("a part without a number");
            if (below > 100 * count && one == other)
                fail("the same twice");
        }
}

// Each number may be drawn: a kernel that is wrong where nobody looks would be called right.
void everywhere() {
    mskb::Rng rng(6, 6, 6);
    for (size_t count : {size_t{4}, size_t{7}, size_t{20}, size_t{39}}) {
        std::vector<int> seen(40, 0);
        for (int k = 0; k < 4000; ++k)
            for (size_t number : mskb::spread(count, seen.size(), rng))
                ++seen[number];
        for (size_t number = 0; number < seen.size(); ++number)
            if (seen[number] < 4000 * static_cast<int>(count - 2) / 40 / 3)
                fail("a number is hardly drawn");
    }
}

} // namespace

int main(int, char** argv) {
    std::strcmp(argv[1], "order") == 0        ? order()
    : std::strcmp(argv[1], "everywhere") == 0 ? everywhere()
                                              : shares();
}
