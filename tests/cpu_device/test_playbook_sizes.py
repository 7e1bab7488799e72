"""Paths that sorting, top_k, prefix_sum and fft take beyond their tasks' sizes, or where clusters can't be started."""

from __future__ import annotations

import pytest

from cpu_device.run_text import run_text
from cudamaster.core import resources

PLAYBOOK = resources.package() / "playbook"
# Wrappers by a name for both precisions, and arrays of the host and the device.
COMMON = """
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>
#ifdef IN_BF16
typedef __nv_bfloat16 Number;
static float number(Number x) { return __bfloat162float(x); }
#define CALL TASK_bf16_optimized
#else
typedef float Number;
static float number(Number x) { return x; }
#define CALL TASK_optimized
#endif
template <class T> static T* on_device(const std::vector<T>& from) {
    void* to = nullptr;
    cudaMalloc(&to, from.size() * sizeof(T));
    cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
    return (T*)to;
}
template <class T> static std::vector<T> on_host(const T* from, size_t count) {
    std::vector<T> to(count);
    cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost);
    return to;
}
"""
MAINS = {
    "sorting": """
int main(int, char** words) {
    int N = std::atoi(words[1]), kinds = std::atoi(words[2]), start = std::atoi(words[3]);
    unsigned seed = 1;
    std::vector<Number> data(start + N);
    std::vector<float> expected(N);
    for (int i = 0; i < N; ++i) {
        seed = seed * 1664525u + 1013904223u;
        data[start + i] = (Number)((float)(seed >> 8) * (seed & 128 ? 1.0f : -1.0f));
        if (kinds > 0)
            data[start + i] = (Number)(seed >> 8 & 1 ? INFINITY : -(float)((seed >> 9) % kinds));
        if (kinds < 0) // digits that all have, all of them or all but the lowest
            data[start + i] = (Number)(1.0f + (kinds < -1 ? (float)(seed >> 25) / (1 << 23) : 0.0f));
        if (kinds < -2) { // the upper two, the outer two, the lower two, two others; few values of the lowest
            const unsigned masks[] = {0xffff0000, 0xff0000ff, 0x0000ffff, 0x00ff00ff, 0xffffff01};
            unsigned bits = (seed ^ seed >> 15) * 0x9e3779b1u;
            bits = (bits ^ bits >> 13) & masks[-3 - kinds] & 0xbfffffff;
            float drawn;
            memcpy(&drawn, &bits, 4);
            data[start + i] = (Number)drawn;
        }
        expected[i] = number(data[start + i]);
    }
    std::sort(expected.begin(), expected.end());
    Number* device = on_device(data);
    CALL(device + start, N);
    data = on_host(device, start + N);
    for (int i = 0; i < N; ++i)
        if (number(data[start + i]) != expected[i])
            return 1;
    return cudaDeviceSynchronize() != cudaSuccess;
}
""",
    "top_k": """
int main(int, char** words) {
    int N = std::atoi(words[1]), k = std::atoi(words[2]), rising = std::atoi(words[3]);
    unsigned seed = 1;
    std::vector<Number> input(N);
    for (int i = 0; i < N; ++i) {
        seed = seed * 1664525u + 1013904223u;
        input[i] = (Number)(float)(rising == 1 ? i : (int)(seed >> 8) % 100000);
        if (rising > 1 && i % 256 < 127) // half of the groups have all of the largest
            input[i] = (Number)(float)(rising == 2 ? 100000 + (int)(seed >> 8) % 100000 : 200000);
    }
    std::vector<int> order(N);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return number(input[a]) > number(input[b]); });
    Number* values = on_device(std::vector<Number>(k));
    int* indices = on_device(std::vector<int>(k, -1));
    CALL(values, indices, on_device(input), N, k);
    auto found = on_host(values, k);
    auto at = on_host(indices, k);
    for (int i = 0; i < k; ++i)
        if (at[i] != order[i] || number(found[i]) != number(input[order[i]]))
            return 1;
    return cudaDeviceSynchronize() != cudaSuccess;
}
""",
    "prefix_sum": """
int main(int, char** words) {
    int N = std::atoi(words[1]), start = std::atoi(words[2]);
    std::vector<Number> input(start + N), none(start + N, (Number)NAN);
    for (int i = 0; i < N; ++i)
        input[start + i] = (Number)(float)((i * 7) % 11 - 5 + (i % 4096 == 0)); // sums are whole numbers
    Number *from = on_device(input), *to = on_device(none);
    CALL(to + start, on_device(std::vector<Number>(start + N, (Number)1.0f)) + start, N); // leaves its sums behind
    CALL(to + start, from + start, N);
    auto output = on_host(to, start + N);
    float sum = 0.0f;
    for (int i = 0; i < N; ++i) {
        sum += number(input[start + i]);
        if (number(output[start + i]) != number((Number)sum))
            return 1;
    }
    return cudaDeviceSynchronize() != cudaSuccess;
}
""",
    "fft": """
int main(int, char** words) {
    int N = std::atoi(words[1]), places[] = {0, 1, N / 3, N / 2 + 5, N - 2};
    std::vector<Number> real(N, (Number)0.0f), img(N, (Number)0.0f), none(N, (Number)NAN);
    for (int i = 0; i < 5; ++i) {
        real[places[i]] = (Number)(float)(i + 1);
        img[places[i]] = (Number)(float)(2 - i);
    }
    Number *to_real = on_device(none), *to_img = on_device(none);
    CALL(on_device(real), on_device(img), to_real, to_img, N);
    real = on_host(to_real, N);
    img = on_host(to_img, N);
    double allowed = sizeof(Number) == 2 ? 0.1 : 1e-5;
    for (int k = 0; k < N; ++k) {
        double re = 0, im = 0;
        for (int i = 0; i < 5; ++i) {
            double turn = -2 * M_PI * (double)((long long)k * places[i] % N) / N;
            re += (i + 1) * std::cos(turn) - (2 - i) * std::sin(turn);
            im += (i + 1) * std::sin(turn) + (2 - i) * std::cos(turn);
        }
        if (!(std::abs(number(real[k]) - re) <= allowed && std::abs(number(img[k]) - im) <= allowed))
            return 1;
    }
    return cudaDeviceSynchronize() != cudaSuccess;
}
""",
}
# Both programs end so: what is sorted is as expected.
SORTED = """
    Number* device = on_device(data);
    CALL(device, N);
    data = on_host(device, N);
    for (int i = 0; i < N; ++i)
        if (number(data[i]) != expected[i])
            return 1;
    return cudaDeviceSynchronize() != cudaSuccess;
}
"""
# Numbers that sorting's blocks do not sample, and others at the places that they do sample.
HIDDEN = (
    """
static float evenly(unsigned& seed) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 24);
}
int main(int, char** words) {
    int N = std::atoi(words[1]), kind = std::atoi(words[2]);
    unsigned seed = 1;
    std::vector<Number> data(N);
    for (int i = 0; i < N; ++i) {
        float u = evenly(seed), hidden = 1 + 1e-3f * u; // one bucket, the last
        if (kind == 1)
            hidden = -3 - u; // the first
        if (kind == 2)
            hidden = (i % 2 ? 0.5f : -0.5f) + 1e-4f * u; // two
        if (kind == 3)
            hidden = i % 2 ? 0.25f + 1e-4f * u : 2 * u - 1; // half of the numbers in one
        if (kind == 4 || kind == 5)
            hidden = 0.25f + (kind == 4 ? i : N - i) * 1e-7f; // in order
        if (kind == 6)
            hidden = (float)(int)(4 * u) * 1e-4f; // four values
        if (kind == 7)
            hidden = 4 * u - 2;
        data[i] = (Number)hidden;
    }
    // Samples are spread evenly; all equal, with zeros of both signs; or near each other, with two that are not.
    int samples = N <= 4096 ? 128 : 512, each = N <= 4096 ? 1 : 4;
    for (int spread = 0; spread < samples; ++spread) {
        unsigned jitter = spread * 2654435761u >> 26;
        int first = (unsigned)((spread * 64ull + jitter) * ((N + 3) / 4 - (N > 4096 && N % 4)) / (samples * 64)) * 4;
        for (int k = 0; k < each; ++k) {
            float u = evenly(seed), sample = 2 * u - 1;
            if (kind == 6)
                sample = expf(60 * sample);
            if (kind == 7)
                sample = spread % 2 ? 0.0f : -0.0f;
            if (kind == 5)
                sample = spread == 3 ? -1e20f : spread == 300 ? 1e20f : 1 + 1e-5f * u;
            data[first + k] = (Number)sample;
        }
    }
    std::vector<float> expected(N);
    for (int i = 0; i < N; ++i)
        expected[i] = number(data[i]);
    std::sort(expected.begin(), expected.end());
    std::vector<Number> plain(N);
    for (Number& each : plain)
        each = (Number)evenly(seed);
    CALL(on_device(plain), N); // leaves its counters behind
"""
    + SORTED
)
# Few values that most numbers have, among others; numbers that crowd though none are equal; and an order.
CROWDED = (
    """
int main(int, char** words) {
    int N = std::atoi(words[1]), kind = std::atoi(words[2]);
    unsigned seed = 1;
    auto evenly = [&] {
        seed = seed * 1664525u + 1013904223u;
        return (float)(seed >> 8) / (1 << 24);
    };
    std::vector<Number> data(N);
    std::vector<float> expected(N);
    for (int i = 0; i < N; ++i) {
        float u = evenly(), other = 2 * evenly() - 1, number = 0;
        if (kind == 0) // nine of ten
            number = u < 0.9f ? 0.3f : other;
        if (kind == 1) // three values, with two that are next to the others
            number = u < 0.3f ? 0.3f : u < 0.6f ? -0.3f : u < 0.9f ? 0.7f : other;
        if (kind == 2) // zeros of both signs
            number = u < 0.3f ? 0.0f : u < 0.6f ? -0.0f : other;
        if (kind == 3) // half of them next to the others
            number = u < 0.5f ? 0.3f : 0.3f + 1e-6f * other;
        if (kind == 4)
            number = (u < 0.5f ? 1.0f : -1.0f) + 1e-5f * other;
        if (kind == 5) // exponents
            number = ldexpf(other, (int)(200 * u) - 100);
        if (kind == 6) // in order
            number = (float)(i - N / 3);
        if (kind == 7)
            number = u < 0.2f ? INFINITY : u < 0.4f ? -INFINITY : other;
        if (kind == 8) // one of them is far away
            number = i == N / 2 ? 1e30f : other;
        data[i] = (Number)number;
        expected[i] = number;
    }
    std::sort(expected.begin(), expected.end());
"""
    + SORTED
)
# Odd sizes are sorted as very long arrays are: by digits, in few blocks, those above 20000 with their states and with
# memory of their own, or by counting, multiples of three in less shared memory. Of the others only multiples of four
# get a cluster in fp32, and many buckets count as too large for a block.
SORTING_FP32 = {
    "if (N <= kFew && start_cluster": "if (N <= kFew && N % 4 == 0 && start_cluster",
    "if (N <= kRuns * kRun && N": "if (N % 2 == 0 && N <= kRuns * kRun && N",
    "if (clustered && start_cluster": "if (clustered && N % 4 == 0 && start_cluster",
    "too_large = count > kRoom": "too_large = count > kRun",
    "if (N < 1 << 30)": "if (N < 20000)",
    "kScratch = ((1 << 26) /": "kScratch = ((1 << 14) /",
    "kPlaceBlocks = 264": "kPlaceBlocks = 2",
}
COUNTED = "count_in_cluster<1>(data, N) || count_in_cluster<4>(data, N) || count_in_cluster<16>(data, N)"
SORTING_BF16 = {
    COUNTED: f"N % 2 == 0 && ({COUNTED})",
    "if (!count_and_spread<1>(data, N))": "if (N % 3 == 0 || !count_and_spread<1>(data, N))",
}
# Long transforms in bf16 allocate memory.
FFT_BF16 = {"kScratch = 1 << 24": "kScratch = 1 << 19"}
# Where clusters don't do it, odd lengths are summed as on GPUs that have none, and the others in rounds of few blocks.
PREFIX_SUM = {"if (major < 9)": "if (N % 2 == 1)", "blocks *= kBlocks;": "blocks = 5;"}
SIZES: dict[str, list[tuple[int, ...]]] = {
    "sorting": [
        (8193, 0, 0),
        (20003, 0, 1),
        (16383, 3, 0),
        (8192, 0, 1),
        (8194, 2, 0),
        (4098, 0, 1),
        (16386, 0, 0),
        (2048, 0, 1),
        (2050, 3, 1),
        (40002, 0, 1),
        (20003, -1, 1),
        (20003, -2, 0),
        (30001, 3, 0),
        (30001, -3, 0),
        (30001, -4, 0),
        (30001, -5, 1),
        (30001, -6, 0),
        (70001, -7, 0),
    ],
    "top_k": [(65537, 128, 0), (100003, 7, 1), (65537, 1, 0), (65536, 128, 2), (65536, 128, 3), (30001, 101, 2)],
    "prefix_sum": [
        (4097, 1),
        (40001, 1),
        (600001, 0),
        (300001, 0),
        (262144, 0),
        (100003, 0),
        (600002, 0),
        (700002, 1),
        (3000, 1),
        (80002, 1),
    ],
    "fft": [(1 << 19,), (1 << 21,)],
}
STEPS = {
    "sorting": "3_one_launch",
    "top_k": "2_one_cluster",
    "prefix_sum": "2_clusters_read_what_is_before",
    "fft": "2_one_cluster",
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("task", "sizes"), [(task, sizes) for task, each in SIZES.items() for sizes in each])
def test_a_step_is_right_beyond_the_sizes_of_its_task(
    task: str, sizes: tuple[int, ...], precision: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Longer and unaligned arrays, and ways that only other GPUs or other inputs take."""
    text = (PLAYBOOK / task / precision / f"{STEPS[task]}.cu").read_text()
    changes = {
        ("sorting", "fp32"): SORTING_FP32,
        ("sorting", "bf16"): SORTING_BF16,
        ("fft", "bf16"): FFT_BF16,
        ("prefix_sum", "fp32"): PREFIX_SUM,
        ("prefix_sum", "bf16"): PREFIX_SUM,
    }
    for old, new in changes.get((task, precision), {}).items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text += "#define IN_BF16\n" if precision == "bf16" else ""
    ran = run_text(text + COMMON.replace("TASK", task) + MAINS[task], sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(8))
@pytest.mark.parametrize("count", [4000, 7001, 65535])
def test_sorting_is_right_where_samples_tell_nothing(
    count: int, kind: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Most numbers go to one bucket or two, too large for a block, so all blocks begin anew."""
    text = (PLAYBOOK / "sorting" / "fp32" / "3_one_launch.cu").read_text()
    ran = run_text(text + COMMON.replace("TASK", "sorting") + HIDDEN, (count, kind), tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(9))
@pytest.mark.parametrize("count", [1027, 4096, 8192, 65536])
def test_sorting_is_right_where_numbers_crowd(count: int, kind: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bins with more numbers than are compared: nearly all of them equal, or not."""
    text = (PLAYBOOK / "sorting" / "fp32" / "3_one_launch.cu").read_text()
    ran = run_text(text + COMMON.replace("TASK", "sorting") + CROWDED, (count, kind), tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr
