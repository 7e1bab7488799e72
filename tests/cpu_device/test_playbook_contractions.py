"""Paths of high_order_contraction's kernels that the sizes of its checks do not all take."""

from __future__ import annotations

import pytest

from cpu_device.run_text import run_text
from cudamaster.core import resources

PLAYBOOK = resources.package() / "playbook" / "high_order_contraction"
MAIN = """
#include <cuda_bf16.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
static float number(float x) { return x; }
static float number(__nv_bfloat16 x) { return __bfloat162float(x); }
int main(int, char** words) {
    multiprocessors = std::atoi(words[6]);
    int a_dim = std::atoi(words[1]), b_dim = std::atoi(words[2]), c_dim = std::atoi(words[3]);
    int x_dim = std::atoi(words[4]), y_dim = std::atoi(words[5]), blocks = std::atoi(words[6]);
    int rows = a_dim * b_dim;
    std::vector<TYPE> a((size_t)rows * x_dim * y_dim), b((size_t)c_dim * x_dim * y_dim);
    std::vector<TYPE> c((size_t)rows * c_dim, (TYPE)99.0f);
    unsigned state = 1;
    auto next = [&] {
        state = state * 1664525u + 1013904223u;
        return (float)(state >> 8) / 8388608.0f - 1.0f;
    };
    for (TYPE& x : a)
        x = (TYPE)next();
    for (TYPE& x : b)
        x = (TYPE)next();
    TYPE *A, *B, *C;
    cudaMalloc(&A, a.size() * sizeof(TYPE));
    cudaMalloc(&B, b.size() * sizeof(TYPE));
    cudaMalloc(&C, c.size() * sizeof(TYPE));
    cudaMemcpy(A, a.data(), a.size() * sizeof(TYPE), cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), b.size() * sizeof(TYPE), cudaMemcpyHostToDevice);
    cudaMemcpy(C, c.data(), c.size() * sizeof(TYPE), cudaMemcpyHostToDevice);
    if (!CALL || cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(c.data(), C, c.size() * sizeof(TYPE), cudaMemcpyDeviceToHost);
    double worst = 0, worst_of_fp32 = 0, total = 0, total_of_fp32 = 0;
    for (int row = 0; row < rows; ++row)
        for (int col = 0; col < c_dim; ++col) {
            double sum = 0, scale = 0;
            float single = 0;
            for (int x = 0; x < x_dim; ++x)
                for (int y = 0; y < y_dim; ++y) {
                    float left = number(a[(((size_t)(row / b_dim) * x_dim + x) * b_dim + row % b_dim) * y_dim + y]);
                    float right = number(b[((size_t)x * c_dim + col) * y_dim + y]);
                    sum += (double)left * right;
                    scale += std::fabs((double)left * right);
                    single = std::fmaf(left, right, single);
                }
            double error = std::fabs(number(c[(size_t)row * c_dim + col]) - sum);
            double of_fp32 = std::fabs(number((TYPE)single) - sum);
            worst = error / scale <= worst ? worst : error / scale;
            worst_of_fp32 = std::fmax(worst_of_fp32, of_fp32 / scale);
            total += error * error;
            total_of_fp32 += of_fp32 * of_fp32;
        }
    std::fprintf(stderr, "worst error %g of the sum of the terms' sizes, of an fp32 loop %g; mean error %g of its\\n",
                 worst, worst_of_fp32, std::sqrt(total / total_of_fp32));
    return !(worst < 1.5 * worst_of_fp32);
}
"""
CASES = [  # a, b, c, x, y, multiprocessors
    (3, 50, 128, 16, 16, 1),  # several tiles for each warpgroup, the last in part
    (5, 41, 48, 16, 8, 2),
    (4, 33, 72, 7, 16, 2),  # vectors and columns beyond the last
    (2, 70, 136, 9, 8, 1),  # two groups of columns
    (9, 24, 64, 11, 16, 1),  # several of a in a tile
    (3, 90, 72, 4, 4, 2),  # the fewest products
]


def contract(step: str, kind: str, case: tuple[int, ...], temporary: pytest.TempPathFactory) -> None:
    """A contraction by the step's own function for the given number of multiprocessors."""
    text = (PLAYBOOK / step).read_text()
    asks = "cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);"
    assert asks in text
    call = "contract_on_hopper(A, B, C, rows, b_dim, c_dim, x_dim, y_dim)"
    words = MAIN.replace("CALL", call).replace("TYPE", kind)
    text = "static int multiprocessors;\n" + text.replace(asks, "blocks = multiprocessors;")
    ran = run_text(text + words, case, temporary)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_contraction_of_bf16_is_right(case: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    contract("bf16/2_one_factor_in_registers.cu", "__nv_bfloat16", case, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_contraction_in_three_parts_is_as_exact_as_fp32(
    case: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    contract("fp32/2_three_parts_in_registers.cu", "float", case, tmp_path_factory)
