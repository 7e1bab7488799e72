// The choice among a library's algorithms: each is called in turn with the others and with cold caches, and the fastest
// on the device is taken.
#pragma once
#include <algorithm>
#include <vector>
#include "mskb/timing.h"
#include "vendor/check.h"

namespace vendor {

// A clock for calls on the device with cold caches. Its memory is given back: the calls to come have the device.
class ColdClock {
  public:
    ColdClock() {
        scratch_.hold(mskb::CacheFlush::bytes());
        VENDOR_CHECK(cudaEventCreate(&begin_)), VENDOR_CHECK(cudaEventCreate(&end_));
    }
    ~ColdClock() {
        cudaEventDestroy(begin_), cudaEventDestroy(end_);
        scratch_.drop();
    }
    ColdClock(const ColdClock&) = delete;
    ColdClock& operator=(const ColdClock&) = delete;

    // Milliseconds. The device is busy with the flush while the host launches.
    template <class Call> float time(const Call& call) const {
        mskb::CacheFlush{scratch_.as<unsigned char>()}();
        VENDOR_CHECK(cudaEventRecord(begin_));
        call();
        VENDOR_CHECK(cudaEventRecord(end_));
        VENDOR_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        VENDOR_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds;
    }

  private:
    Memory scratch_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

constexpr int kFirstCalls = 3, kSecondCalls = 15; // of each algorithm, after one to warm up
constexpr size_t kSecondRound = 5;                // algorithms
// Of calls that take long, those that are hopeless are made but once, and none when the round has taken too long: the
// judge waits. Milliseconds.
constexpr float kLong = 1, kHopeless = 4, kLongestRound = 3000;

// The `keep` fastest, by the median of `calls`. `run(algorithm)` says whether it worked; one that did not is out.
template <class Run>
std::vector<size_t> fastest(const std::vector<size_t>& listed, const ColdClock& clock, int calls, size_t keep,
                            const Run& run) {
    struct Seen {
        size_t algorithm;
        bool out = false;
        std::vector<float> times;
        float median() const { return times[times.size() / 2]; }
    };
    std::vector<Seen> all;
    for (size_t algorithm : listed)
        all.push_back({algorithm, false, {}});
    float spent = 0;
    for (int call = -1; call < calls && (call < 1 || spent < kLongestRound); ++call) {
        float least = 0;
        for (Seen& one : all) {
            if (one.out)
                continue;
            float time = clock.time([&] { one.out = !run(one.algorithm); });
            spent += time;
            if (call < 0 || one.out)
                continue;
            one.times.push_back(time);
            least = least > 0 ? std::min(least, time) : time;
        }
        for (Seen& one : all)
            one.out = one.out || (call == 0 && one.times[0] > kLong && one.times[0] > kHopeless * least);
    }
    cudaGetLastError(); // of those that refused
    all.erase(std::remove_if(all.begin(), all.end(), [](const Seen& one) { return one.out; }), all.end());
    for (Seen& one : all)
        std::sort(one.times.begin(), one.times.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const Seen& one, const Seen& other) { return one.median() < other.median(); });
    std::vector<size_t> kept;
    for (size_t i = 0; i < std::min(keep, all.size()); ++i)
        kept.push_back(all[i].algorithm);
    return kept;
}

// The fastest in two rounds, or nothing in the list where none works.
template <class Run>
std::vector<size_t> fastest(const std::vector<size_t>& listed, const ColdClock& clock, const Run& run) {
    return fastest(fastest(listed, clock, kFirstCalls, kSecondRound, run), clock, kSecondCalls, 1, run);
}

} // namespace vendor
