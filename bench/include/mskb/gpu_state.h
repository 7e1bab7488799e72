// What the driver's management library (NVML) says of the GPU meanwhile: clocks, what holds them down, who else computes
// on it. It is loaded when it is there; without it nothing is known, and so nothing is said.
#pragma once
#include <algorithm>
#include <string>
#include <vector>
#ifndef MSKB_CPU_DEVICE
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>
#endif

namespace mskb {

struct Clocks {
    unsigned sm_mhz = 0; // 0: not known
    bool thermal = false, power_capped = false;
};

#ifdef MSKB_CPU_DEVICE

class GpuState {
  public:
    Clocks clocks() const { return {}; }
    std::vector<std::string> others(const std::vector<int>&) const { return {}; }
};

#else

class GpuState {
  public:
    GpuState() {
        library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        char bus[32] = {};
        int device = 0;
        auto start = function<int()>("nvmlInit_v2");
        auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
        if (start == nullptr || find == nullptr || cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess || start() != 0 ||
            find(bus, &gpu_) != 0)
            gpu_ = nullptr;
        clock_ = function<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
        reasons_ = function<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons");
        if (reasons_ == nullptr) // its name before release 535 of the driver
            reasons_ = function<int(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
    }

    Clocks clocks() const {
        constexpr int kSm = 1;
        constexpr unsigned long long kPowerCap = 0x4, kHardware = 0x8, kThermal = 0x20 | 0x40,
                                     kPowerBrake = 0x80;
        Clocks now;
        unsigned long long reasons = 0;
        if (gpu_ != nullptr && clock_ != nullptr && clock_(gpu_, kSm, &now.sm_mhz) != 0)
            now.sm_mhz = 0;
        if (gpu_ != nullptr && reasons_ != nullptr && reasons_(gpu_, &reasons) == 0) {
            now.thermal = (reasons & (kHardware | kThermal | kPowerBrake)) != 0;
            now.power_capped = (reasons & kPowerCap) != 0;
        }
        return now;
    }

    // Processes that compute on the GPU beside this one and `known`, as "name (pid)".
    std::vector<std::string> others(const std::vector<int>& known) const {
        struct Process { // nvmlProcessInfo_t
            unsigned pid;
            unsigned long long bytes;
            unsigned instance, compute_instance;
        };
        auto list = function<int(void*, unsigned*, Process*)>("nvmlDeviceGetComputeRunningProcesses_v3");
        auto name_of = function<int(unsigned, char*, unsigned)>("nvmlSystemGetProcessName");
        std::vector<std::string> found;
        Process processes[64];
        unsigned count = 64;
        if (gpu_ == nullptr || list == nullptr || list(gpu_, &count, processes) != 0)
            return found;
        // In a container the list may hold other numbers than those that we know our processes by.
        bool numbers_agree = false;
        for (unsigned i = 0; i < count; ++i)
            numbers_agree = numbers_agree || static_cast<int>(processes[i].pid) == getpid();
        if (!numbers_agree && count > known.size() + 1)
            found.push_back(std::to_string(count - known.size() - 1) + " processes more than our own");
        for (unsigned i = 0; i < count && numbers_agree; ++i) {
            int pid = static_cast<int>(processes[i].pid);
            if (pid == getpid() || std::find(known.begin(), known.end(), pid) != known.end())
                continue;
            char name[256] = {};
            if (name_of == nullptr || name_of(processes[i].pid, name, sizeof name - 1) != 0)
                name[0] = '\0';
            found.push_back((name[0] != '\0' ? std::string(name) : "a process") + " (" + std::to_string(pid) +
                            ")");
        }
        return found;
    }

  private:
    template <class Function> Function* function(const char* name) const {
        return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    }

    void* library_ = nullptr;
    void* gpu_ = nullptr;
    int (*clock_)(void*, int, unsigned*) = nullptr;
    int (*reasons_)(void*, unsigned long long*) = nullptr;
};

#endif

} // namespace mskb
