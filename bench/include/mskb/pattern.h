// Which elements of an output are wrong and what stands there instead, in words that help to find the fault.
//
// Only what is seen is said: a shape when the wrong elements fill at least three quarters of it (some are right by
// chance), and what the values have in common when all of them do. Nothing here runs on a device.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>
#include "mskb/number.h"

namespace mskb {

// Indices, added in ascending order.
class IndexSet {
  public:
    void add(size_t index) {
        if (count_ > 0)
            step_ = std::gcd(step_, index - last_);
        else
            first_ = index;
        last_ = index;
        ++count_;
    }
    size_t count() const { return count_; }
    size_t first() const { return first_; }
    size_t last() const { return last_; }

    // Whether these are most of first, first + step, first + 2 step ... last.
    bool regular() const { return count_ > 0 && 4 * count_ >= 3 * places(); }

    // These of `n`, each called `noun`: "row 5", "rows 3..9", "the last 2 rows, 8..9", "every 4th row, 1..9".
    std::string words(const std::string& noun, size_t n) const {
        std::string range = std::to_string(first_) + ".." + std::to_string(last_), nouns = noun + "s";
        if (count_ == n && n > 1)
            return "all " + nouns;
        if (count_ == 1)
            return (last_ + 1 == n && n > 1 ? "the last " : "") + noun +
                   (last_ + 1 == n && n > 1 ? ", " : " ") + std::to_string(first_);
        if (!regular() || (step_ > 1 && count_ < 4))
            return std::to_string(count_) + " " + nouns + " within " + range;
        std::string most = count_ == places() ? "" : "most of ";
        if (step_ > 1)
            return most + "every " + ordinal(step_) + " " + noun + ", " + range;
        if (last_ + 1 == n && first_ > 0)
            return most + "the last " + std::to_string(places()) + " " + nouns + ", " + range +
                   remainder(n, places());
        return most + nouns + " " + range;
    }

  private:
    size_t places() const { return (last_ - first_) / std::max<size_t>(step_, 1) + 1; }

    // Block sizes that leave so many of `n` over: what a kernel forgets that handles full blocks alone.
    static std::string remainder(size_t n, size_t length) {
        std::string sizes;
        for (size_t block = 2; block <= 1024; block *= 2)
            if (length < block && n > block && n % block == length)
                sizes += (sizes.empty() ? "" : ", ") + std::to_string(block);
        return sizes.empty() ? "" : " (what full blocks of " + sizes + " leave over)";
    }
    static std::string ordinal(size_t k) {
        const char* ends[] = {"th", "st", "nd", "rd"};
        return std::to_string(k) + (k % 10 < 4 && (k % 100 < 11 || k % 100 > 13) ? ends[k % 10] : "th");
    }

    size_t count_ = 0, first_ = 0, last_ = 0, step_ = 0;
};

// An element that is not what it should be.
struct Mismatch {
    size_t element;
    double expected, got, allowed; // allowed: how far the two may be apart
    double scale;                  // what errors are measured on
};

// The shape of a set of elements of a vector (width 0) or of a matrix with rows of `width` elements.
class Shape {
  public:
    Shape(size_t elements, size_t width) : n_(elements), width_(width > 1 && width < elements ? width : 0) {
        if (width_ > 0) {
            in_row_.resize((n_ - 1) / width_ + 1);
            in_column_.resize(width_);
        }
    }

    // In ascending order.
    void add(size_t element) {
        elements_.add(element);
        if (width_ > 0) {
            ++in_row_[element / width_];
            ++in_column_[element % width_];
        }
    }
    size_t count() const { return elements_.count(); }

    std::string words() const {
        if (count() == 0)
            return "none";
        if (count() == n_)
            return n_ == 1 ? "the only element" : "every element";
        if (count() == 1)
            return "one element, " + place(elements_.first());
        if (width_ == 0)
            return vector_words();
        return matrix_words();
    }

  private:
    static bool most(size_t part, size_t whole) { return 4 * part >= 3 * whole; }

    std::string place(size_t element) const {
        std::string text = std::to_string(element);
        if (width_ > 0)
            text += " (row " + std::to_string(element / width_) + ", column " +
                    std::to_string(element % width_) + ")";
        return text;
    }
    std::string range() const {
        return width_ > 0 ? place(elements_.first()) + " to " + place(elements_.last())
                          : std::to_string(elements_.first()) + ".." + std::to_string(elements_.last());
    }

    std::string vector_words() const {
        if (most(count(), n_))
            return "nearly every element, " + std::to_string(count()) + " of " + std::to_string(n_);
        return (elements_.regular() ? "" : "scattered, ") + elements_.words("element", n_);
    }

    std::string matrix_words() const {
        IndexSet rows, columns, full_rows, full_columns; // with any of the elements, and with most of theirs
        size_t height = in_row_.size();
        for (size_t r = 0; r < height; ++r) {
            if (in_row_[r] > 0)
                rows.add(r);
            if (most(in_row_[r], width_))
                full_rows.add(r);
        }
        for (size_t c = 0; c < width_; ++c) {
            if (in_column_[c] > 0)
                columns.add(c);
            if (most(in_column_[c], height))
                full_columns.add(c);
        }
        size_t span = elements_.last() - elements_.first() + 1;
        bool ragged = elements_.first() % width_ != 0 || (elements_.last() + 1) % width_ != 0;
        if (count() == span && ragged && (rows.count() > 1 || elements_.last() + 1 == n_))
            return elements_.last() + 1 == n_
                       ? elements_.words("element", n_) + ", from " + place(elements_.first())
                       : "a run, elements " + range();
        if (full_rows.count() == height)
            return "nearly every element, " + std::to_string(count()) + " of " + std::to_string(n_);
        if (full_rows.count() == rows.count())
            return rows.words("row", height);
        if (full_columns.count() == columns.count())
            return columns.words("column", width_);
        if (most(count(), rows.count() * columns.count()) && rows.regular() && columns.regular())
            return "a tile: " + rows.words("row", height) + "; " + columns.words("column", width_);
        if (is_union(full_rows, full_columns))
            return full_rows.words("row", height) + ", and " + full_columns.words("column", width_);
        if (elements_.regular())
            return elements_.words("element", n_);
        return "scattered, " + std::to_string(count()) + " elements in " + rows.words("row", height) + "; " +
               columns.words("column", width_);
    }

    // Whether the elements are those of some rows and of some columns, as at the edges of a tiled matrix.
    bool is_union(const IndexSet& full_rows, const IndexSet& full_columns) const {
        if (full_rows.count() == 0 || full_columns.count() == 0)
            return false;
        for (size_t inside : in_row_)
            if (!most(inside, width_) && inside > full_columns.count())
                return false;
        for (size_t inside : in_column_)
            if (!most(inside, in_row_.size()) && inside > full_rows.count())
                return false;
        size_t whole = n_ - (in_row_.size() - full_rows.count()) * (width_ - full_columns.count());
        return most(count(), whole);
    }

    size_t n_, width_;
    IndexSet elements_;
    std::vector<size_t> in_row_, in_column_;
};

// What wrong values have in common.
class Values {
  public:
    // All of them.
    void count(Flaw flaw) { ++of_[static_cast<int>(flaw)]; }

    // As many as are at hand, spread over all.
    void look_at(const Mismatch& wrong) { seen_.push_back(wrong); }

    std::string words(Kind kind) const {
        static const char* const names[kFlaws] = {
            "", "", "zero", "infinite", "NaN", "as it was before the call (never written, or only added to)"};
        size_t all = std::accumulate(of_, of_ + kFlaws, size_t(0));
        std::string text;
        for (int flaw = kFlaws - 1; flaw > static_cast<int>(Flaw::kOff); --flaw) {
            if (of_[flaw] == all && all > 0)
                return std::string(all == 1 ? "" : "each ") + names[flaw];
            if (of_[flaw] > 0)
                text += (text.empty() ? "" : ", ") + std::to_string(of_[flaw]) + " of them " + names[flaw];
        }
        if (!text.empty() || all == 0)
            return text;
        if (double factor = common_factor(); factor != 1)
            return "each " + number("%.6g", factor) + " times what it should be";
        if ((kind == Kind::kFloat || kind == Kind::kHalf) && few_bits(16))
            return "each rounded to 8 significant bits, as bf16 has";
        if (kind == Kind::kFloat && few_bits(13))
            return "each rounded to 11 significant bits, as TF32 and fp16 have";
        return kind == Kind::kInt ? "" : small_errors();
    }

  private:
    static constexpr size_t kEnough = 8; // so many values have something in common by no accident

    static std::string number(const char* format, double value) {
        char text[40];
        std::snprintf(text, sizeof text, format, value);
        return text;
    }

    // The factor that explains all values within what they may be off by; 1 when there is none.
    double common_factor() const {
        if (seen_.size() < kEnough)
            return 1;
        const Mismatch& largest =
            *std::max_element(seen_.begin(), seen_.end(), [](const Mismatch& a, const Mismatch& b) {
                return std::abs(a.expected) < std::abs(b.expected);
            });
        double factor = largest.got / largest.expected;
        size_t telling =
            0; // values that would be found wrong at half or twice the factor's distance from 1 too
        for (const Mismatch& p : seen_) {
            if (!(std::abs(p.got - factor * p.expected) <= p.allowed * (1 + std::abs(factor))))
                return 1;
            telling += std::abs((factor - 1) * p.expected) > 8 * p.allowed * (1 + std::abs(factor));
        }
        return telling >= kEnough ? factor : 1;
    }

    // Whether the last `zeros` bits of every value are zero, though those of the expected ones are not.
    bool few_bits(int zeros) const {
        auto short_of = [&](double value) {
            float v = static_cast<float>(value);
            uint32_t bits;
            std::memcpy(&bits, &v, sizeof bits);
            return (bits & ((1u << zeros) - 1)) == 0;
        };
        size_t telling = 0;
        for (const Mismatch& p : seen_) {
            if (!short_of(p.got))
                return false;
            telling += !short_of(p.expected);
        }
        return telling >= kEnough;
    }

    std::string small_errors() const {
        if (seen_.size() < kEnough)
            return "";
        double largest = 0;
        for (const Mismatch& p : seen_)
            largest = std::max(largest, p.scale > 0 ? std::abs(p.got - p.expected) / p.scale : INFINITY);
        if (!(largest > 0 && largest <= 0x1.0p-7))
            return "";
        return "small errors, at most 2^" + number("%.0f", std::ceil(std::log2(largest))) +
               " of the scale: lost precision, a term left out, or a constant slightly off";
    }

    size_t of_[kFlaws] = {};
    std::vector<Mismatch> seen_;
};

} // namespace mskb
