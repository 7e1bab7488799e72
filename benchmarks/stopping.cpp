// Times of simulated calls, taken until the rule that ends the timing of real ones says so (bench/include/mskb/stopping.h).
// A line for each case: what the baseline's calls took, in µs, then what the candidate's took. benchmarks/stopping.py
// builds and reads it.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include "mskb/stopping.h"

namespace {

struct Setting {
    double cases = 1000, seed = 1;
    double us = 100, speed = 1;   // of a call of the baseline; how many times as fast the candidate is
    double noise = 0.02;          // of the logarithm of a turn's ratio, standard deviation
    double shared = 0;            // the same, of all calls of a side in a series
    double held = 0.03;           // part of calls that are held up, for two to five times their time
    double every = 0, slow = 1;   // in one call of so many, the candidate takes so many times as long:
    double drawn = 0;             // 1: whichever chance makes it, 0: at even distances
    double turn_seconds = 0.0015; // what a turn takes the judge
    double part = 1, extra_seconds = 0.2, long_calls = 0, slots = 15;
    double by_precision = 1; // 0: all turns that are asked for, and no others

    void set(const char* name, double value) {
        const struct {
            const char* name;
            double Setting::* field;
        } fields[] = {
            {"cases", &Setting::cases},
            {"seed", &Setting::seed},
            {"us", &Setting::us},
            {"speed", &Setting::speed},
            {"noise", &Setting::noise},
            {"shared", &Setting::shared},
            {"held", &Setting::held},
            {"every", &Setting::every},
            {"slow", &Setting::slow},
            {"drawn", &Setting::drawn},
            {"turn_seconds", &Setting::turn_seconds},
            {"part", &Setting::part},
            {"extra_seconds", &Setting::extra_seconds},
            {"long_calls", &Setting::long_calls},
            {"slots", &Setting::slots},
            {"by_precision", &Setting::by_precision},
        };
        for (const auto& known : fields)
            if (std::strcmp(known.name, name) == 0) {
                this->*known.field = value;
                return;
            }
        std::fprintf(stderr, "no setting is called %s\n", name);
        std::exit(64);
    }
};

mskb::Turns turns_of(const Setting& setting, std::mt19937_64& random, mskb::Rng& rng) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> unit;
    constexpr size_t kWanted = 50, kPairs = 2;
    const mskb::Stopping stopping{kWanted,
                                  static_cast<size_t>(setting.slots),
                                  kPairs,
                                  setting.long_calls != 0,
                                  setting.by_precision != 0,
                                  setting.part,
                                  setting.extra_seconds};
    auto held = [&] { return unit(random) < setting.held ? 2 + 3 * unit(random) : 1; };
    double calls[kPairs]; // of each process of the candidate, from where it happens to stand
    for (double& count : calls)
        count = std::floor(1000 * unit(random));
    mskb::Turns turns;
    size_t taken = 0;
    bool last = false;
    for (size_t series = 0; !last; ++series) {
        const size_t count = stopping.next_series(taken, rng);
        taken += count;
        last = stopping.is_last(turns, taken, setting.turn_seconds * static_cast<double>(taken - count));
        double baseline_shift = setting.shared * normal(random),
               candidate_shift = setting.shared * normal(random);
        for (size_t k = 0; k < count; ++k) {
            double& number = calls[series % kPairs];
            const bool slow =
                setting.every > 0 && (setting.drawn != 0 ? setting.every * unit(random) < 1
                                                         : std::fmod(++number, setting.every) == 0);
            const double noise = setting.noise / std::sqrt(2);
            turns.baseline_us.push_back(setting.us * std::exp(baseline_shift + noise * normal(random)) *
                                        held());
            turns.candidate_us.push_back(setting.us / setting.speed * (slow ? setting.slow : 1) *
                                         std::exp(candidate_shift + noise * normal(random)) * held());
        }
    }
    return turns;
}

} // namespace

int main(int argc, char** argv) {
    Setting setting;
    for (int k = 1; k < argc; ++k) {
        char* value = std::strchr(argv[k], '=');
        if (value == nullptr) {
            std::fprintf(stderr, "%s is not of the form NAME=NUMBER\n", argv[k]);
            return 64;
        }
        *value = '\0';
        setting.set(argv[k], std::atof(value + 1));
    }
    std::mt19937_64 random(static_cast<uint64_t>(setting.seed));
    mskb::Rng rng(static_cast<uint64_t>(setting.seed), 0, 0);
    for (int k = 0; k < setting.cases; ++k) {
        const mskb::Turns turns = turns_of(setting, random, rng);
        for (const std::vector<double>* side : {&turns.baseline_us, &turns.candidate_us})
            for (double us : *side)
                std::fprintf(stdout, "%.7g ", us);
        std::fprintf(stdout, "\n");
    }
}
