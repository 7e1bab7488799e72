// The double-precision reference on several processors of the host: each makes a share of what is asked for.
//
// What the reference makes together (a unit, task.h) stays together, so that no work is done twice; each element comes
// of the inputs alone, so that it is the same to the last bit whoever makes it. All is over when the call returns:
// nothing of it runs beside a timed call.
#pragma once
#include <algorithm>
#include <thread>
#include <vector>
#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif
#include "mskb/task.h"

namespace mskb {

constexpr double kShareOperations = 5e5; // that are worth a thread
constexpr size_t kMostShares = 16;

// The processors that helpers of the judge run on.
class Helpers {
  public:
    // Before the judge goes to a core of its own: `wanted`, or all that it may use but those two.
    Helpers([[maybe_unused]] const std::vector<int>& wanted, [[maybe_unused]] int core,
            [[maybe_unused]] int workers_core) {
#ifdef __linux__
        if (sched_getaffinity(0, sizeof cores_, &cores_) != 0)
            return;
        for (int k : {core, workers_core})
            if (k >= 0)
                CPU_CLR(k, &cores_);
        if (!wanted.empty()) {
            CPU_ZERO(&cores_);
            for (int k : wanted)
                CPU_SET(k, &cores_);
        }
        count_ = CPU_COUNT(&cores_);
#endif
    }

    size_t count() const { return count_; }

    // To be called by a helper: its own processors are those of the judge, which may be one core.
    void settle() const {
#ifdef __linux__
        pthread_setaffinity_np(pthread_self(), sizeof cores_, &cores_);
#endif
    }

  private:
    size_t count_ = 0;
#ifdef __linux__
    cpu_set_t cores_ = {};
#endif
};

// So many shares are worth their threads.
inline size_t shares_of(const std::vector<BufferSpec>& specs, const std::vector<Expected>& expected,
                        const Helpers& helpers) {
    double operations = 0;
    size_t most = 1;
    for (size_t i = 0; i < specs.size(); ++i) {
        size_t units = expected[i].units(specs[i].unit);
        operations += static_cast<double>(units) * std::max(specs[i].cost, 1.0);
        most = std::max(most, units);
    }
    size_t worth = static_cast<size_t>(std::min(operations / kShareOperations, double(kMostShares)));
    return std::max<size_t>(std::min({worth, most, helpers.count()}), 1);
}

// task().reference, in shares.
inline void reference_side_by_side(const Helpers& helpers, const Sizes& sizes,
                                   const std::vector<BufferSpec>& specs, const std::vector<const void*>& host,
                                   std::vector<Expected>& expected) {
    size_t count = shares_of(specs, expected, helpers);
    if (count == 1) {
        task().reference(sizes, host, expected);
        return;
    }
    std::vector<std::vector<Expected>> shares(count);
    for (size_t k = 0; k < count; ++k)
        for (size_t i = 0; i < specs.size(); ++i)
            shares[k].push_back(expected[i].share(k, count, specs[i].unit));
    std::vector<std::thread> threads;
    for (size_t k = 0; k < count; ++k)
        threads.emplace_back([&helpers, &sizes, &host, &share = shares[k]] {
            helpers.settle();
            task().reference(sizes, host, share);
        });
    for (std::thread& thread : threads)
        thread.join();
    for (size_t i = 0; i < specs.size(); ++i)
        for (size_t k = 0, begin = 0; k < count; begin += shares[k++][i].wanted.size())
            expected[i].take(shares[k][i], begin);
}

} // namespace mskb
