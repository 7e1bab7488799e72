// The harness's channel to its caller: one JSON object per line, written to a file of its own (never to
// stdout, which belongs to whoever prints there), each line in a single write so that a killed run leaves
// whole lines.
#pragma once
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace mskb {

class Line {
  public:
    explicit Line(const char* event) { add("event", event); }

    Line& add(const char* key, const std::string& text) { return raw(key, quoted(text)); }
    Line& add(const char* key, const char* text) { return raw(key, quoted(text)); }
    Line& add(const char* key, bool value) { return raw(key, value ? "true" : "false"); }
    Line& add(const char* key, int value) { return raw(key, std::to_string(value)); }
    Line& add(const char* key, long long value) { return raw(key, std::to_string(value)); }
    Line& add(const char* key, size_t value) { return raw(key, std::to_string(value)); }
    Line& add(const char* key, double value) { return raw(key, number(value)); }
    Line& add(const char* key, const std::vector<double>& values) {
        std::string list = "[";
        for (double value : values)
            list += (list.size() > 1 ? "," : "") + number(value);
        return raw(key, list + "]");
    }
    Line& add(const char* key, const std::vector<std::string>& texts) {
        std::string list = "[";
        for (const std::string& text : texts)
            list += (list.size() > 1 ? "," : "") + quoted(text);
        return raw(key, list + "]");
    }
    Line& raw(const char* key, const std::string& json) {
        text_ += (text_.size() > 1 ? ",\"" : "\"") + std::string(key) + "\":" + json;
        return *this;
    }
    std::string json() const { return text_ + "}"; }

    // JSON has no NaN and no infinity: they are written as strings.
    static std::string number(double value) {
        if (!std::isfinite(value))
            return std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
        char text[40];
        std::snprintf(text, sizeof text, "%.17g", value);
        return text;
    }
    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (unsigned char c : text) {
            char escaped[8];
            if (c == '"' || c == '\\')
                out += std::string("\\") + static_cast<char>(c);
            else if (c < 0x20)
                out += (std::snprintf(escaped, sizeof escaped, "\\u%04x", c), escaped);
            else
                out += static_cast<char>(c);
        }
        return out + "\"";
    }

  private:
    std::string text_ = "{";
};

class Report {
  public:
    // Opens `path` for appending; an empty path means stdout, for a person who runs the harness by hand.
    explicit Report(const std::string& path)
        : descriptor_(path.empty() ? 1
                                   : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
        if (descriptor_ < 0)
            std::perror(path.c_str());
    }
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report() {
        if (descriptor_ > 1)
            close(descriptor_);
    }
    bool ok() const { return descriptor_ >= 0; }

    // Writes the line with `t`, the seconds since the report was opened.
    void write(Line line) const {
        std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - opened_;
        std::string text = line.add("t", elapsed.count()).json() + "\n";
        if (::write(descriptor_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
            std::_Exit(74);
    }

  private:
    int descriptor_;
    std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
};

} // namespace mskb
