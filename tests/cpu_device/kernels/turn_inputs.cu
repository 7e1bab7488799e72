// What the turns of a case are given, also when they are taken anew.
#include <cstdio>
#include <cstdlib>
#include <set>
#include "mskb/turn_inputs.h"

namespace {

void hold(bool held, const char* what) {
    if (held)
        return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

struct Given {
    size_t values, structure;
};

// Takes so many turns, and anew so many others, after 3 warm-ups; structure is made for `fresh` calls.
void hold_fresh(size_t fresh, size_t wanted, const std::vector<size_t>& counts) {
    size_t made = 0;
    mskb::TurnInputs<Given> inputs(3, wanted, fresh, [&](size_t number, const Given* donor) {
        return Given{number, donor != nullptr ? donor->structure : made++};
    });
    std::set<size_t> values, before, structures;
    for (size_t k = 0; k < 3; ++k) {
        hold(values.insert(inputs.warmup(k).values).second, "a warm-up sees inputs of another");
        before.insert(inputs.warmup(k).structure);
        hold(inputs.known(7).structure < 3, "a process knows no structure but that of its warm-ups");
    }
    size_t turn = 0, begin = 0;
    for (size_t count : counts) {
        if (turn > 0)
            inputs.begin_anew(begin = turn);
        structures.clear();
        for (; turn < begin + count; ++turn) {
            Given given = turn < begin + wanted ? inputs.turn(turn) : inputs.further(turn);
            hold(values.insert(given.values).second, "a turn sees inputs of another call");
            structures.insert(given.structure);
            if (fresh == 3 + wanted && turn < begin + wanted)
                hold(before.count(given.structure) == 0, "structure of calls that are forgotten comes back");
        }
        if (fresh == 3 + wanted)
            hold(structures.size() >= std::min(count, wanted), "structure recurs among the turns");
        before.insert(structures.begin(), structures.end());
    }
    hold(inputs.made().size() == 3 + (counts.back() > wanted / 2 ? wanted : (wanted + 1) / 2),
         "the second half is made where it is needed");
}

} // namespace

int main() {
    for (size_t fresh : {1, 2, 3, 5, 23})
        for (size_t first : {1, 16, 20, 21, 200})
            for (size_t last : {10, 11})
                hold_fresh(fresh, 20, {first, 20, 3, 90, last});
    return 0;
}
