// When timing may stop before all turns were taken, and when a worker's clock is believed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include "mskb/turns.h"

namespace {

void hold(bool held, const char* what) {
    if (held)
        return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

// Turns of a kernel that takes 80 us to its baseline's 100, and `slow` times as long in every `every`-th call.
mskb::Turns turns(int count, int every, double slow) {
    mskb::Turns made;
    for (int k = 0; k < count; ++k) {
        made.baseline_us.push_back(100 + 0.1 * (k % 7));
        made.candidate_us.push_back((80 + 0.1 * (k % 5)) * (k % every == every - 1 ? slow : 1));
    }
    return made;
}

// Turns of calls of 50 us. Of every 50, the candidate says of the first `lies` that they took `said_us`; messages take 4 us,
// and `slow_us` in `slow` turns of every 50 on both sides, a few of which do not coincide.
mskb::Turns talks(int lies, double said_us, int slow = 0, double slow_us = 0) {
    mskb::Turns made;
    for (int k = 0; k < 50; ++k) {
        double said = k < lies ? said_us : 50;
        auto message = [&](int from) { return 4 + (k >= from && k < from + slow ? slow_us : 0); };
        made.baseline_us.push_back(50);
        made.candidate_us.push_back(said);
        made.baseline_outside_us.push_back(message(10));
        made.candidate_outside_us.push_back(message(16) + 50 - said);
    }
    return made;
}

void hold_lies() {
    hold(!talks(0, 0).contradicted(), "who says what the judge sees is believed");
    hold(talks(50, 44).contradicted(), "a call is longer than it is said to be");
    hold(!talks(50, 46.5).contradicted(), "messages differ by so much");
    hold(talks(22, 1).contradicted(), "fewer than half of the calls move no median, but the speedup");
    hold(talks(14, 1).contradicted(), "and so do a few more than a fifth");
    hold(!talks(9, 1).contradicted(), "a fifth does not");
    hold(!talks(0, 0, 14, 30).contradicted(), "a processor that is busy for a while is no lie");
    for (bool rival : {false, true})
        hold(!talks(0, 0, 30, 75).contradicted(rival), "nor is one that is busy more often than not");
    for (int lies : {11, 12, 26, 39})
        for (double said_us : {0.0, 1e-294, 0.1, 5.0}) {
            mskb::Turns made = talks(lies, said_us);
            hold(made.contradicted() ? std::isfinite(made.overstated()) : made.overstated() < 1.09,
                 "few lies of any size move the speedup");
        }
    for (double longer_us : {60.0, 90.0, 1e6}) { // as far as the judge takes such a report at all
        mskb::Turns made = talks(20, 10);
        for (int k = 20; k < 50; ++k) {
            made.candidate_us[k] = longer_us;
            made.candidate_outside_us[k] = 54 - longer_us;
        }
        bool gains = 20 * std::log(5) > 30 * std::log(longer_us / 50);
        hold(made.contradicted() || !gains, "who says too much at times may not say too little at others");
    }
    hold(talks(50, 40, 20, 30).contradicted(), "which hides no lie either");
    mskb::Turns rival = talks(50, 40);
    std::swap(rival.baseline_us, rival.candidate_us);
    std::swap(rival.baseline_outside_us, rival.candidate_outside_us);
    hold(rival.contradicted(true), "a rival may lie as a candidate may");
    hold(!rival.contradicted(), "a baseline has no reason to");
    hold(!turns(24, 24, 1).contradicted(true),
         "where the judge has no clock of its own, nothing contradicts");
    mskb::Turns both = talks(50, 0);
    both.baseline_us.assign(50, 0);
    hold(std::isfinite(both.overstated()) && std::isfinite(both.overstated(true)),
         "two liars make no nonsense");
    mskb::Turns forgotten = talks(50, 1);
    forgotten.power_capped = 50;
    forgotten.forget_calls();
    hold(forgotten.baseline_us.empty() && forgotten.retaken == 1 && !forgotten.contradicted() &&
             !forgotten.contradicted(true),
         "what is forgotten contradicts nothing");
    hold(forgotten.power_capped == 0, "nor are more turns under the power cap than there are");
}

} // namespace

int main() {
    hold_lies();
    hold(turns(24, 24, 1).precise() && turns(24, 24, 1).even(), "quiet turns are enough");
    hold(turns(24, 5, 0.5).even(), "calls that are fast now and then do no harm");
    hold(turns(24, 24, 5).even(), "nor does a single one that is slow, however slow");
    hold(!turns(24, 12, 1.3).even(), "but two of them do");
    hold(!turns(12, 12, 1.3).even(), "and of few turns a single one");
    for (size_t count : {12, 13, 14, 17, 24, 29})
        for (bool candidate : {false, true}) {
            mskb::Turns held_up = turns(count, count, 1);
            for (size_t k = 0; k <= count / 5; ++k)
                (candidate ? held_up.candidate_us : held_up.baseline_us)[k] *= 2;
            hold(!held_up.precise(), "what moves the typical turn makes it imprecise");
        }
    mskb::Turns noisy = turns(24, 24, 1);
    for (size_t k = 0; k < 24; ++k)
        noisy.candidate_us[k] *= k % 2 ? 1.01 : 0.99;
    hold(!noisy.precise(), "a case that is all of P has to be known well");
    hold(noisy.precise(1, true), "unless its calls take long, ...");
    hold(noisy.precise(0.4), "one of many may be known less well, ...");
    for (size_t k = 0; k < 24; ++k)
        noisy.candidate_us[k] *= k % 2 ? 1.04 : 0.96;
    hold(!noisy.precise(0), "... but not as little as one likes");
    hold(turns(24, 5, 2).precise() && !turns(24, 5, 2).even(),
         "calls of which a fifth are slow look precise");
    hold(turns(24, 6, 10).precise() && !turns(24, 6, 10).even(), "and so do those that are very slow");
}
