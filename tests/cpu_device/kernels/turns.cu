// When timing may stop before all turns were taken.
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

} // namespace

int main() {
    hold(turns(24, 24, 1).precise() && turns(24, 24, 1).even(), "quiet turns are enough");
    hold(turns(24, 5, 0.5).even(), "calls that are fast now and then do no harm");
    hold(turns(24, 24, 1.2).even(), "nor does a single one that is slow by a fifth");
    hold(turns(24, 5, 2).precise() && !turns(24, 5, 2).even(),
         "calls of which a fifth are slow look precise");
    hold(turns(24, 6, 10).precise() && !turns(24, 6, 10).even(), "and so do those that are very slow");
}
