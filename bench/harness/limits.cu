// What this GPU can do at best, measured: bandwidths of its memory and rates of its units. One JSON object on stdout.
//
// Figures are the best of many short launches, since a floor under times has to be a true one. Rates count a
// multiplication and an addition as two operations; `tensor_by` is the instruction that reached the tensor cores' rate.
#include "harness/limits/arithmetic.h"
#include "harness/limits/memory.h"
#include "harness/limits/tensor.h"

namespace {

int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    CHECKED(cudaGetDevice(&device));
    CHECKED(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

} // namespace

int main() {
    int processors = attribute(cudaDevAttrMultiProcessorCount);
    cudaDeviceProp properties;
    CHECKED(cudaGetDeviceProperties(&properties, 0));
    // Twice the clock: memory moves data on both edges.
    double memory_peak =
        2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
    Bandwidths memory = measure_memory(processors);
    double clock_before = sm_clock_mhz(processors);
    double fp32 = unit_rate<Fp32>(processors), bf16 = unit_rate<Bf16Pair>(processors);
    double special = unit_rate<Special>(processors);
    TensorRate tensor = measure_tensor(processors);
    double clock_after = sm_clock_mhz(processors);
    std::printf(
        "{\"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"l2_bytes\": %d, ",
        properties.name, properties.major, properties.minor, processors, attribute(cudaDevAttrL2CacheSize));
    std::printf("\"threads_per_sm\": %d, \"registers_per_sm\": %d, \"shared_bytes_per_sm\": %d, "
                "\"shared_bytes_per_block\": %d, ",
                attribute(cudaDevAttrMaxThreadsPerMultiProcessor),
                attribute(cudaDevAttrMaxRegistersPerMultiprocessor),
                attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
                attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    std::printf("\"read_bytes_per_s\": %.4g, \"write_bytes_per_s\": %.4g, \"copy_bytes_per_s\": %.4g, "
                "\"memory_peak_bytes_per_s\": %.4g, ",
                memory.read, memory.write, memory.copy, memory_peak);
    std::printf(
        "\"fp32_per_s\": %.4g, \"bf16_pairs_per_s\": %.4g, \"tensor_per_s\": %.4g, \"tensor_by\": \"%s\", "
        "\"special_per_s\": %.4g, ",
        fp32, bf16, tensor.operations_per_s, tensor.by, special);
    std::printf("\"sm_clock_max_mhz\": %d, \"sm_clock_before_mhz\": %.0f, \"sm_clock_after_mhz\": %.0f}\n",
                attribute(cudaDevAttrClockRate) / 1000, clock_before, clock_after);
    return 0;
}
