"""Paths of playbook kernels that only large matrices take, on small ones: they are right there too."""

from __future__ import annotations

import pytest

from cpu_device.run_text import run_text
from cudamaster.core import resources
from cudamaster.devices.protocol import Ran

PLAYBOOK = resources.package() / "playbook"
STEP = "bf16/2_warpgroups_and_tensor_maps.cu"
# Whole numbers, so that every order of summing is exact.
MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
static int value(int i, int j) { return (i * 7 + j * 13) % 9 - 4; }
// Called as a function of the device is: it has to keep to its own.
static float number(float x) { return x; }
static float number(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class Plan> static int differ(int M, int N, int K, [[maybe_unused]] int split, int blocks) {
    std::vector<__nv_bfloat16> a((size_t)M * K), b((size_t)K * N);
    std::vector<RESULT> c((size_t)M * N, 99.0f);
    for (int i = 0; i < M; ++i)
        for (int k = 0; k < K; ++k)
            a[(size_t)i * K + k] = __float2bfloat16((float)value(i, k));
    for (int k = 0; k < K; ++k)
        for (int j = 0; j < N; ++j)
            b[BY_ROWS ? (size_t)k * N + j : (size_t)j * K + k] = __float2bfloat16((float)value(k + 3, 2 * j));
    __nv_bfloat16 *A, *B;
    RESULT* C;
    cudaMalloc(&A, a.size() * 2);
    cudaMalloc(&B, b.size() * 2);
    cudaMalloc(&C, c.size() * sizeof c[0]);
    cudaMemcpy(A, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(C, c.data(), c.size() * sizeof c[0], cudaMemcpyHostToDevice);
    if (!CALL || cudaDeviceSynchronize() != cudaSuccess)
        return -1;
    cudaMemcpy(c.data(), C, c.size() * sizeof c[0], cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            int sum = 0;
            for (int k = 0; k < K; ++k)
                sum += value(i, k) * value(k + 3, 2 * j);
            wrong += number(c[(size_t)i * N + j]) != number((RESULT)(float)sum);
        }
    return wrong;
}
int main(int, char** words) {
    int numbers[5];
    for (int i = 0; i < 5; ++i)
        numbers[i] = std::atoi(words[i + 1]);
    int wrong = differ<PLAN>(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
    std::printf("%d wrong\\n", wrong);
    return wrong != 0;
}
"""
OF_MATRICES = [  # rows, columns, of the inner dimension, slices of it, multiprocessors
    ("Wide", 400, 264, 264, 1, 4),  # two blocks make more than one tile each, more steps than stages
    ("Square", 264, 136, 520, 1, 2),
    ("Narrow", 136, 200, 712, 1, 4),
    ("Low", 136, 136, 1000, 1, 4),  # more tiles than blocks, more steps than stages
    ("Low", 264, 64, 72, 1, 132),
    ("Thin", 40, 264, 1032, 4, 132),  # slices of different lengths
    ("Thin", 64, 128, 256, 4, 132),  # slices of one step
]
PRODUCT = {"CALL": "launch_hopper<Plan>(A, B, C, M, N, K, blocks)", "RESULT": "__nv_bfloat16", "BY_ROWS": "1"}
OF_ATTENTION = (
    "launch_hopper<Plan, BY_ROWS>(Matrix<const __nv_bfloat16>{A, K}, Matrix<const __nv_bfloat16>{B, BY_ROWS ? N : K}, "
    "Matrix<RESULT>{C, N}, M, N, K, 1.0f, blocks, false)"
)
SCORES = {"CALL": OF_ATTENTION, "RESULT": "float", "BY_ROWS": "0"}
VALUES = {"CALL": OF_ATTENTION, "RESULT": "__nv_bfloat16", "BY_ROWS": "1"}
Sizes = tuple[str, int, int, int, int, int]


def defining(words: dict[str, str]) -> str:
    """Macros in front of a main. As flags they would keep the compiler from using its compiled header."""
    return "\n" + "".join(f"#define {name} {value}\n" for name, value in words.items())


def run_plan(text: str, case: Sizes, words: dict[str, str], temporary: pytest.TempPathFactory) -> Ran:
    """What a plan of a kernel gives on matrices of whole numbers."""
    return run_text(text + defining({"PLAN": case[0], **words}) + MAIN, case[1:], temporary)


def named(case: Sizes) -> str:
    return f"{case[0]}-{'x'.join(map(str, case[1:4]))}-{case[4]}"


@pytest.mark.slow(but=["Thin-40x264x1032-4"])
@pytest.mark.parametrize("case", OF_MATRICES, ids=named)
def test_a_plan_is_right_on_small_matrices(case: Sizes, tmp_path_factory: pytest.TempPathFactory) -> None:
    ran = run_plan((PLAYBOOK / "matrix_mul" / STEP).read_text(), case, PRODUCT, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", [("Low", 256, 256, 256, 1, 132), ("Low", 136, 200, 328, 1, 132)], ids=named)
def test_small_tiles_are_right(case: Sizes, tmp_path_factory: pytest.TempPathFactory) -> None:
    at_once = {**PRODUCT, "CALL": "multiply_at_once(A, B, C, M, N, K)"}
    ran = run_plan((PLAYBOOK / "matrix_mul" / STEP).read_text(), case, at_once, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        (("Wide", 264, 528, 136, 1, 4), SCORES),  # more tiles than blocks
        (("Wide", 136, 264, 328, 1, 132), VALUES),  # more steps than stages
        (("Square", 264, 264, 456, 1, 132), SCORES),
        (("Square", 264, 136, 520, 1, 4), VALUES),
        (("Thin", 40, 264, 1032, 1, 132), SCORES),
    ],
    ids=lambda given: named(given) if isinstance(given, tuple) else "scores" if given is SCORES else "values",
)
def test_a_plan_of_attention_is_right_on_small_matrices(
    case: Sizes, words: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keys lie as they are read, values with rows and columns exchanged."""
    ran = run_plan((PLAYBOOK / "softmax_attention" / STEP).read_text(), case, words, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
def test_descriptors_with_the_rank_of_the_block_are_wrong(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As on an H200, where shared addresses in a cluster have it above the place in the block's own memory."""
    text, masks = (PLAYBOOK / "matrix_mul" / STEP).read_text(), "(address & 0x3ffff)"
    assert masks in text
    ran = run_plan(text.replace(masks, "address"), ("Thin", 64, 128, 256, 4, 132), PRODUCT, tmp_path_factory)
    assert ran.exit_code != 0


IN_PARTS = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int, char** words) {
    int M = std::atoi(words[1]), N = std::atoi(words[2]), K = std::atoi(words[3]);
    unsigned state = 1;
    // Of all sizes, some beyond what fp16 has.
    auto next = [&] {
        state = state * 1664525u + 1013904223u;
        float unit = (float)(state >> 8) / 8388608.0f - 1.0f;
        return state % 97 == 0 ? unit * 1e15f : state % 89 == 0 ? unit * 1e-15f : unit;
    };
    std::vector<float> a((size_t)M * K), b((size_t)K * N), c((size_t)M * N, NAN);
    for (float& x : a)
        x = next();
    for (float& x : b)
        x = next();
    float *A, *B, *C;
    cudaMalloc(&A, a.size() * 4);
    cudaMalloc(&B, b.size() * 4);
    cudaMalloc(&C, c.size() * 4);
    cudaMemcpy(A, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), b.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(C, c.data(), c.size() * 4, cudaMemcpyHostToDevice);
    if (!CALL || cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(c.data(), C, c.size() * 4, cudaMemcpyDeviceToHost);
    double worst = 0, worst_of_fp32 = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double sum = 0, scale = 0;
            float single = 0;
            for (int k = 0; k < K; ++k) {
                double term = (double)a[(size_t)i * K + k] * b[(size_t)k * N + j];
                sum += term;
                scale += std::fabs(term);
                single = std::fmaf(a[(size_t)i * K + k], b[(size_t)k * N + j], single);
            }
            double error = std::fabs(c[(size_t)i * N + j] - sum) / scale;
            worst = error <= worst ? worst : error;
            worst_of_fp32 = std::fmax(worst_of_fp32, std::fabs(single - sum) / scale);
        }
    std::fprintf(stderr, "worst error %g of the sum of the terms' sizes; of an fp32 loop %g\\n", worst, worst_of_fp32);
    return !(worst < 2 * worst_of_fp32);
}
"""


def as_exact_as_fp32(text: str, call: str, sizes: tuple[int, int, int], temporary: pytest.TempPathFactory) -> Ran:
    """What a product of numbers of sizes from 1e-15 to 1e15 gives against doubles and against a loop in fp32."""
    return run_text(text + defining({"CALL": call}) + IN_PARTS, sizes, temporary)


IN_THREE_PARTS = PLAYBOOK / "matrix_mul/fp32/2_tensor_cores_on_three_parts.cu"


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(300, 264, 72), (129, 131, 33), (520, 136, 100)],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
def test_products_in_three_parts_are_as_exact_as_fp32(
    sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Parts of the matrices, one after the other, are small here."""
    text, rooms = IN_THREE_PARTS.read_text(), "kRoomA = 1 << 23, kRoomB = 1 << 24"
    assert rooms in text
    text = text.replace(rooms, "kRoomA = 1 << 15, kRoomB = 1 << 15")
    ran = as_exact_as_fp32(text, "multiply_parts<Square>(A, B, C, M, N, K, 132)", sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "sizes"),
    [
        ("Whole", (300, 264, 264)),  # two blocks make more than one tile each, more steps than stages
        ("Halves", (136, 136, 328)),  # slices of different lengths
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(str, given)),
)
def test_numbers_taken_apart_on_the_way_are_as_exact_as_fp32(
    plan: str, sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    call = f"multiply_on_the_way<{plan}>(A, B, C, M, N, K, 2)"
    ran = as_exact_as_fp32(IN_THREE_PARTS.read_text(), call, sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "sizes", "blocks"),
    [
        ("Four", (72, 132, 520), 12),  # two slices of different lengths
        ("Four", (40, 64, 36), 132),  # fewer steps than warpgroups
        ("Two", (136, 132, 616), 24),
        ("Two", (260, 68, 1032), 2),
    ],
    ids=lambda given: "-".join(map(str, given)) if isinstance(given, tuple) else str(given),
)
def test_warpgroups_in_turns_are_as_exact_as_fp32(
    plan: str, sizes: tuple[int, int, int], blocks: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    call = f"multiply_in_turns<{plan}>(A, B, C, M, N, K, {blocks})"
    ran = as_exact_as_fp32(IN_THREE_PARTS.read_text(), call, sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(256, 256, 256), (100, 132, 300)], ids=lambda sizes: "-".join(map(str, sizes)))
def test_small_tiles_in_three_parts_are_as_exact_as_fp32(
    sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ran = as_exact_as_fp32(IN_THREE_PARTS.read_text(), "multiply_at_once(A, B, C, M, N, K)", sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


ATTENTION = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
static float number(unsigned i) { return (float)((i * 2654435761u >> 16) % 2001) / 1000.0f - 1.0f; }
int main(int, char** words) {
    int batches = std::atoi(words[1]), heads = std::atoi(words[2]);
    int length = std::atoi(words[3]), dim = std::atoi(words[4]);
    size_t count = (size_t)batches * heads * length * dim, masked = (size_t)batches * length * length;
    std::vector<__nv_bfloat16> host[4];
    std::vector<float> mask(masked);
    __nv_bfloat16* places[4];
    float* mask_place;
    for (int k = 0; k < 4; ++k) {
        host[k].resize(count);
        for (size_t i = 0; i < count; ++i)
            host[k][i] = __float2bfloat16(number((unsigned)(i * 4 + k)));
        cudaMalloc(&places[k], count * 2);
        cudaMemcpy(places[k], host[k].data(), count * 2, cudaMemcpyHostToDevice);
    }
    for (size_t i = 0; i < masked; ++i)
        mask[i] = i / length % length == i % length ? 0.0f : (float)(i * 7 % 10 == 3);
    cudaMalloc(&mask_place, masked * 4);
    cudaMemcpy(mask_place, mask.data(), masked * 4, cudaMemcpyHostToDevice);
    triangle_attention_bf16_optimized(places[0], places[1], places[2], mask_place, places[3], batches, heads, length,
                                      dim);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    cudaMemcpy(host[3].data(), places[3], count * 2, cudaMemcpyDeviceToHost);
    auto at = [&](int k, int head, int row, int d) {
        return (double)__bfloat162float(host[k][((size_t)head * length + row) * dim + d]);
    };
    double worst = 0;
    for (int head = 0; head < batches * heads; ++head)
        for (int i = 0; i < length; i += 7) {
            std::vector<double> weights(i + 1), sums(dim);
            double total = 0;
            for (int j = 0; j <= i; ++j) {
                double dot = 0;
                for (int d = 0; d < dim; ++d)
                    dot += at(0, head, i, d) * at(1, head, j, d);
                bool out = mask[((size_t)(head / heads) * length + i) * length + j] > 0.5f;
                total += weights[j] = out ? 0 : std::exp(dot / std::sqrt((double)dim));
            }
            for (int d = 0; d < dim; ++d) {
                double sum = 0;
                for (int j = 0; j <= i; ++j)
                    sum += weights[j] / total * at(2, head, j, d);
                worst = std::fmax(worst, std::fabs(sum - at(3, head, i, d)));
            }
        }
    std::fprintf(stderr, "worst error %g\\n", worst);
    return !(worst < 0.01);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(2, 4, 300, 72), (1, 140, 130, 64), (2, 3, 129, 128), (1, 4, 390, 40), (1, 2, 150, 200)],
    ids=lambda s: "-".join(map(str, s)),
)
def test_heads_that_share_a_mask_each_get_their_own_result(
    sizes: tuple[int, int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tiles behind the first, more of them than blocks; the error is that of weights rounded to bf16."""
    folder = resources.package() / "playbook" / "triangle_attention" / "bf16"
    text = (folder / "3_warpgroups_and_a_shared_mask.cu").read_text()
    ran = run_text(text + ATTENTION, sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


# Attention in fp32 against sums in double precision, and how far a plain loop in fp32 is off.
EXACT = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
static float number(unsigned i) {
    i = (i ^ i >> 15) * 0x85ebca6bu;
    return (float)((i ^ i >> 13) * 0xc2b2ae35u >> 8) / 8388608.0f - 1.0f;
}
static float* on_device(const std::vector<float>& numbers) {
    float* place;
    cudaMalloc(&place, numbers.size() * 4);
    cudaMemcpy(place, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice);
    return place;
}
template <class Real, class Allowed>
static std::vector<Real> attend(const float* q, const float* k, const float* v, int keys, int dim_qk, int dim_v,
                                Allowed allowed) {
    std::vector<Real> weights(keys), result(dim_v, (Real)0);
    Real largest = -INFINITY, total = 0;
    for (int j = 0; j < keys; ++j) {
        Real dot = 0;
        for (int d = 0; d < dim_qk; ++d)
            dot += (Real)q[d] * (Real)k[(size_t)j * dim_qk + d];
        weights[j] = allowed(j) ? dot / std::sqrt((Real)dim_qk) : -INFINITY;
        largest = weights[j] > largest ? weights[j] : largest;
    }
    for (Real& weight : weights)
        total += weight = std::exp(weight - largest);
    for (int j = 0; j < keys; ++j)
        for (int c = 0; c < dim_v; ++c)
            result[c] += weights[j] / total * (Real)v[(size_t)j * dim_v + c];
    return result;
}
static double worst = 0, worst_of_fp32 = 0;
static void compare(const float* y, const std::vector<double>& right, const std::vector<float>& plain) {
    for (size_t c = 0; c < right.size(); ++c) {
        double error = std::fabs(y[c] - right[c]);
        worst = error <= worst ? worst : error;
        worst_of_fp32 = std::fmax(worst_of_fp32, std::fabs(plain[c] - right[c]));
    }
}
int main(int, char** words) {
    int sizes[4];
    for (int i = 0; i < 4; ++i)
        sizes[i] = std::atoi(words[i + 1]);
    std::vector<float> host[5];
    auto fill = [&](int which, size_t count, float scale) {
        for (size_t i = 0; i < count; ++i)
            host[which].push_back(scale * number((unsigned)(i * 4 + which)));
    };
    TASK
    std::fprintf(stderr, "worst error %g, of an fp32 loop %g\\n", worst, worst_of_fp32);
    return !(worst < 2 * worst_of_fp32);
}
"""
SOFTMAX = """
    int queries = sizes[0], keys = sizes[1], dim_qk = sizes[2], dim_v = sizes[3];
    fill(0, (size_t)queries * dim_qk, 3), fill(1, (size_t)keys * dim_qk, 3), fill(2, (size_t)keys * dim_v, 100);
    host[3].resize((size_t)queries * dim_v, NAN);
    float* Y = on_device(host[3]);
    softmax_attention_optimized(Y, on_device(host[0]), on_device(host[1]), on_device(host[2]), queries, keys, dim_qk,
                                dim_v);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(host[3].data(), Y, host[3].size() * 4, cudaMemcpyDeviceToHost);
    for (int i = 0; i < queries; i += 3) {
        auto all = [](int) { return true; };
        const float* q = &host[0][(size_t)i * dim_qk];
        compare(&host[3][(size_t)i * dim_v],
                attend<double>(q, host[1].data(), host[2].data(), keys, dim_qk, dim_v, all),
                attend<float>(q, host[1].data(), host[2].data(), keys, dim_qk, dim_v, all));
    }
"""
TRIANGLE = """
    int batches = sizes[0], heads = sizes[1], length = sizes[2], dim = sizes[3];
    size_t count = (size_t)batches * heads * length * dim;
    for (int which = 0; which < 3; ++which)
        fill(which, count, 3);
    for (size_t i = 0; i < (size_t)batches * length * length; ++i)
        host[3].push_back(i / length % length == i % length ? 0.0f : (float)(i * 7 % 10 == 3));
    host[4].resize(count, NAN);
    float* output = on_device(host[4]);
    triangle_attention_optimized(on_device(host[0]), on_device(host[1]), on_device(host[2]), on_device(host[3]), output,
                                 batches, heads, length, dim);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(host[4].data(), output, count * 4, cudaMemcpyDeviceToHost);
    for (int head = 0; head < batches * heads; ++head)
        for (int i = 0; i < length; i += 5) {
            size_t first = (size_t)head * length * dim, row = first + (size_t)i * dim;
            const float* mask = &host[3][((size_t)(head / heads) * length + i) * length];
            auto allowed = [&](int j) { return mask[j] <= 0.5f; };
            compare(&host[4][row],
                    attend<double>(&host[0][row], &host[1][first], &host[2][first], i + 1, dim, dim, allowed),
                    attend<float>(&host[0][row], &host[1][first], &host[2][first], i + 1, dim, dim, allowed));
        }
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        ("softmax_attention", (70, 560, 520, 72)),  # parts of the inner dimension in both products
        ("softmax_attention", (200, 300, 100, 136)),  # blocks that share, tiles in part
        ("softmax_attention", (129, 67, 65, 1050)),  # rows that are no multiple of eight
        ("triangle_attention", (2, 2, 200, 72)),
        ("triangle_attention", (1, 3, 129, 128)),
        ("triangle_attention", (2, 1, 320, 40)),
        ("triangle_attention", (1, 2, 150, 200)),  # results in parts
        ("triangle_attention", (1, 140, 130, 64)),  # more tiles than blocks
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(str, given)),
)
def test_attention_on_two_halves_is_as_exact_as_fp32(
    task: str, sizes: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = (PLAYBOOK / task / "fp32/2_tensor_cores_on_two_halves.cu").read_text()
    main = EXACT.replace("TASK", SOFTMAX if task == "softmax_attention" else TRIANGLE)
    ran = run_text(text + main, sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


# Queries that see one key each, which is number row - row % 3: the result is that value to the last bit, however small.
ONE_KEY = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int, char** words) {
    int batches = std::atoi(words[1]), heads = std::atoi(words[2]);
    int length = std::atoi(words[3]), dim = std::atoi(words[4]);
    size_t count = (size_t)batches * heads * length * dim, masked = (size_t)batches * length * length;
    std::vector<float> host(count), mask(masked);
    unsigned bits = 1;
    for (float& value : host) {
        bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
        value = std::ldexp((float)(int)bits, -31 - (int)(bits >> 8) % 30);
    }
    for (size_t i = 0; i < masked; ++i) {
        size_t row = i / length % length;
        mask[i] = i % length == row - row % 3 ? 0.0f : 1.0f;
    }
    float *places[4], *mask_place;
    for (float*& place : places) {
        cudaMalloc(&place, count * 4);
        cudaMemcpy(place, host.data(), count * 4, cudaMemcpyHostToDevice);
    }
    cudaMalloc(&mask_place, masked * 4);
    cudaMemcpy(mask_place, mask.data(), masked * 4, cudaMemcpyHostToDevice);
    triangle_attention_optimized(places[0], places[1], places[2], mask_place, places[3], batches, heads, length, dim);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    std::vector<float> got(count);
    cudaMemcpy(got.data(), places[3], count * 4, cudaMemcpyDeviceToHost);
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
        size_t row = i / dim % length;
        wrong += got[i] != host[i - row % 3 * dim];
    }
    std::fprintf(stderr, "%zu of %zu wrong\\n", wrong, count);
    return wrong != 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [(2, 3, 70, 24), (2, 2, 130, 128), (1, 2, 300, 64), (1, 1, 200, 200)], ids=lambda s: "-".join(map(str, s))
)
def test_a_query_of_one_key_gets_that_value_to_the_last_bit(
    sizes: tuple[int, int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = (PLAYBOOK / "triangle_attention/fp32/2_tensor_cores_on_two_halves.cu").read_text()
    ran = run_text(text + ONE_KEY, sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


# A convolution against sums in double precision: no element may be off by more than the task allows, which is
# four times what a plain loop is off by, or four ulps of the sum of absolute terms, beside two of the result.
CONVOLUTION = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
int main(int, char** words) {
    int rows = std::atoi(words[1]), cols = std::atoi(words[2]);
    int kernel_rows = std::atoi(words[3]), kernel_cols = std::atoi(words[4]);
    int high = rows - kernel_rows + 1, wide = cols - kernel_cols + 1, large = std::atoi(words[6]);
    std::mt19937_64 random(std::atoi(words[5]));
    std::vector<Number> input(rows * cols), kernel(kernel_rows * kernel_cols), output(high * wide);
    for (std::vector<Number>* numbers : {&input, &kernel})
        for (Number& number : *numbers)
            number = (Number)(float)(-1 + 2 * ((random() >> 11) * 0x1p-53));
    for (int k = 0; k < large; ++k)
        {
        Number& number = input[random() % input.size()];
        number = (Number)(256 * (float)number);
    }
    Number* places[3];
    int k = 0;
    for (std::vector<Number>* numbers : {&input, &kernel, &output}) {
        cudaMalloc(&places[k], numbers->size() * sizeof(Number));
        cudaMemcpy(places[k++], numbers->data(), numbers->size() * sizeof(Number), cudaMemcpyHostToDevice);
    }
    CONVOLVE(places[0], places[1], places[2], rows, cols, kernel_rows, kernel_cols);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(output.data(), places[2], output.size() * sizeof(Number), cudaMemcpyDeviceToHost);
    double worst = 0, worst_of_loop = 0;
    for (size_t i = 0; i < output.size(); ++i) {
        double sum = 0, scale = 0;
        float loop = 0;
        for (int p = 0; p < kernel_rows; ++p)
            for (int q = 0; q < kernel_cols; ++q) {
                float x = (float)input[(i / wide + p) * cols + i % wide + q], w = (float)kernel[p * kernel_cols + q];
                sum += (double)x * w, scale += std::fabs((double)x * w), loop = std::fma(x, w, loop);
            }
        float size = std::fabs((float)sum);
        double ulp = std::nextafter(size, INFINITY) - size;
        if (sizeof(Number) == 2)
            ulp = std::ldexp(1.0, std::ilogb(size) - 7);
        double rounding = 2.0 * ulp;
        worst = std::fmax(worst, (std::fabs((float)output[i] - sum) - rounding) / scale);
        worst_of_loop = std::fmax(worst_of_loop, (std::fabs(loop - sum) - rounding) / scale);
    }
    std::fprintf(stderr, "worst error %g, of a loop %g\\n", worst, worst_of_loop);
    return !(worst <= std::fmax(4 * worst_of_loop, 4 * 0x1p-23));
}
"""

CONVOLUTION_IN = {
    "fp32": CONVOLUTION.replace("Number", "float").replace("CONVOLVE", "conv_2d_optimized"),
    "bf16": CONVOLUTION.replace("Number", "__nv_bfloat16").replace("CONVOLVE", "conv_2d_bf16_optimized"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(129, 257, 1, 1, 129261, 0), (150, 200, 32, 3, 2, 0), (70, 130, 32, 8, 1, 0)],
    ids=lambda s: "-".join(map(str, s)),
)
def test_a_convolution_on_two_halves_is_as_exact_as_the_task_asks(
    sizes: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With one weight each product is a result; with few columns there is little to compare what is cut off with."""
    text = (PLAYBOOK / "conv_2d/fp32/2_sparse_products_on_two_halves.cu").read_text()
    ran = run_text(text + CONVOLUTION_IN["fp32"], sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [
        (300, 235, 32, 32, 1, 0),
        (150, 170, 32, 32, 2, 3),
        (241, 131, 22, 22, 3, 0),
        (131, 197, 9, 64, 4, 0),
        (128, 111, 16, 16, 5, 4),
        (119, 127, 8, 32, 6, 2),
        (200, 140, 64, 4, 7, 1),
    ],
    ids=lambda s: "-".join(map(str, s)),
)
def test_a_convolution_by_transforms_is_as_exact_as_the_task_asks(
    sizes: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where a few inputs are up to 256 times the others. Sizes as small as these would be done otherwise.

    One block has all tiles.
    """
    text = (PLAYBOOK / "conv_2d/fp32/3_transforms_of_tiles.cu").read_text()
    for plan, here in (
        ("kFewestTiles = 80", "kFewestTiles = 1"),
        ("sizes.tiles < most ? sizes.tiles : most", "1"),
        ("kFewResults = 40 << 20", "kFewResults = 0"),
    ):
        assert text.count(plan) == 1
        text = text.replace(plan, here)
    ran = run_text(text + CONVOLUTION_IN["fp32"], sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(300, 260, 32, 32, 1, 0), (150, 170, 31, 20, 2, 0), (70, 130, 32, 8, 3, 0), (90, 131, 16, 16, 4, 3)],
    ids=lambda s: "-".join(map(str, s)),
)
def test_a_convolution_in_bf16_is_right_wherever_rows_begin(
    sizes: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows of 229, 151, 123 and 116 outputs."""
    text = (PLAYBOOK / "conv_2d/bf16/2_sparse_products_of_warpgroups.cu").read_text()
    assert text.count("kFewResults = 1 << 24") == 1
    text = text.replace("kFewResults = 1 << 24", "kFewResults = 0")
    ran = run_text(text + CONVOLUTION_IN["bf16"], sizes, tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize(
    ("precision", "step"), [("fp32", "3_transforms_of_tiles"), ("bf16", "2_sparse_products_of_warpgroups")]
)
def test_a_convolution_of_few_results_is_right_at_all_edges(
    precision: str, step: str, outputs: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With two and with four outputs a thread; four are for more outputs than these."""
    text = (PLAYBOOK / f"conv_2d/{precision}/{step}.cu").read_text()
    assert text.count("outputs > 3 << 16") == 1
    text = text.replace("outputs > 3 << 16", "true" if outputs == 4 else "false")
    for sizes in ((70, 130, 8, 8, 1, 0), (16, 16, 16, 16, 2, 0), (33, 47, 3, 16, 3, 2), (9, 100, 1, 1, 4, 0)):
        ran = run_text(text + CONVOLUTION_IN[precision], sizes, tmp_path_factory)
        assert ran.exit_code == 0, (sizes, ran.stderr)


# A first piece of weights that are all zero, and inputs that begin with zeros and go on with large numbers: sums are
# brought from the largest scale there is to a small one.
AFTER_ZEROS = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int, char** words) {
    int inputs = std::atoi(words[1]), weights = std::atoi(words[2]), outputs = inputs - weights + 1;
    std::vector<float> input(inputs), kernel(weights), output(outputs, NAN);
    for (int i = 2400; i < inputs; ++i)
        input[i] = std::ldexp((float)(i * 7 % 9 - 4), std::atoi(words[3]));
    for (int k = 256; k < weights; ++k)
        kernel[k] = (float)(k * 5 % 9 - 4);
    float* places[3];
    int k = 0;
    for (std::vector<float>* numbers : {&input, &kernel, &output}) {
        cudaMalloc(&places[k], numbers->size() * 4);
        cudaMemcpy(places[k++], numbers->data(), numbers->size() * 4, cudaMemcpyHostToDevice);
    }
    conv_1d_optimized(places[0], places[1], places[2], inputs, weights);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(output.data(), places[2], output.size() * 4, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < outputs; ++i) {
        double sum = 0;
        for (int k = 0; k < weights; ++k)
            sum += (double)input[i + k] * kernel[k];
        wrong += output[i] != sum;
    }
    std::fprintf(stderr, "%d of %d wrong\\n", wrong, outputs);
    return wrong != 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0, 28, 100])
def test_a_convolution_is_right_after_a_piece_of_zeros(exponent: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With inputs up to 2^30 the factor between the scales was infinite once, and zero sums became NaN."""
    text = (PLAYBOOK / "conv_1d/fp32/2_warpgroups_on_two_halves.cu").read_text()
    ran = run_text(text + AFTER_ZEROS, (3000, 400, exponent), tmp_path_factory)
    assert ran.exit_code == 0, ran.stderr
