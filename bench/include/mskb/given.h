// Reads sizes given by hand.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include "mskb/task.h"

namespace mskb {

class Given {
  public:
    // Parses "name=value,..."; exits with 64 and a reason when it can't be read.
    explicit Given(const std::string& text) {
        size_t begin = 0;
        while (begin < text.size()) {
            size_t end = std::min(text.find(',', begin), text.size()), equals = text.find('=', begin);
            char* rest = nullptr;
            if (equals != std::string::npos && equals < end)
                values_[text.substr(begin, equals - begin)] = std::strtod(text.c_str() + equals + 1, &rest);
            if (rest == nullptr || rest != text.c_str() + end) {
                std::fprintf(stderr, "--case %s: expected NAME=VALUE,NAME=VALUE\n", text.c_str());
                std::exit(64);
            }
            begin = end + 1;
        }
    }

    double take(const char* name, const double* fallback) {
        auto found = values_.find(name);
        if (found == values_.end() && fallback == nullptr) {
            std::fprintf(stderr, "--case lacks %s\n", name);
            std::exit(64);
        }
        double value = found == values_.end() ? *fallback : found->second;
        if (found != values_.end())
            values_.erase(found);
        return value;
    }

    const std::map<std::string, double>& rest() const { return values_; }

  private:
    std::map<std::string, double> values_;
};

// A verification case of the task.
inline Row row_of(const std::string& text) {
    Given given(text);
    Sizes sizes = task().sizes(given);
    if (!given.rest().empty()) {
        std::fprintf(stderr, "--case %s: there is no size %s\n", text.c_str(),
                     given.rest().begin()->first.c_str());
        std::exit(64);
    }
    return {text, false, 0.0, sizes};
}

} // namespace mskb
