"""Paths of matrix_power's kernels that only large matrices take, on small ones."""

from __future__ import annotations

import pytest

from cpu_device.run_text import run_text
from cudamaster.core import resources

PLAYBOOK = resources.package() / "playbook" / "matrix_power"
# Two numbers of 1 and -1 in each row, so that powers are whole numbers that bf16 has.
MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
static float number(float x) { return x; }
static float number(__nv_bfloat16 x) { return __bfloat162float(x); }
int main(int, char** words) {
    int N = std::atoi(words[1]), P = std::atoi(words[2]), blocks = std::atoi(words[3]);
    std::vector<int> a((size_t)N * N), power, before;
    for (int i = 0; i < N; ++i) {
        a[(size_t)i * N + (i * 7 + 3) % N] += 1;
        a[(size_t)i * N + (i * 5 + 11) % N] -= 1;
    }
    power = a;
    for (int factor = 1; factor < P; ++factor) {
        before.swap(power);
        power.assign((size_t)N * N, 0);
        for (int i = 0; i < N; ++i)
            for (int k = 0; k < N; ++k)
                if (before[(size_t)i * N + k])
                    for (int j : {(k * 7 + 3) % N, (k * 5 + 11) % N})
                        power[(size_t)i * N + j] +=
                            before[(size_t)i * N + k] * (j == (k * 7 + 3) % N ? 1 : -1) *
                            ((k * 7 + 3) % N != (k * 5 + 11) % N);
    }
    std::vector<TYPE> from((size_t)N * N), to((size_t)N * N, (TYPE)99.0f);
    for (size_t i = 0; i < from.size(); ++i)
        from[i] = (TYPE)(float)a[i];
    TYPE *A, *B, *buffer;
    cudaMalloc(&A, from.size() * sizeof(TYPE));
    cudaMalloc(&B, from.size() * sizeof(TYPE));
    cudaMalloc(&buffer, from.size() * sizeof(TYPE));
    cudaMemcpy(A, from.data(), from.size() * sizeof(TYPE), cudaMemcpyHostToDevice);
    int bits = 0, products = -2;
    for (int rest = P; rest > 0; rest /= 2) {
        products += 1 + rest % 2;
        ++bits;
    }
    if (!CALL || cudaDeviceSynchronize() != cudaSuccess)
        return 2;
    cudaMemcpy(to.data(), B, to.size() * sizeof(TYPE), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (size_t i = 0; i < to.size(); ++i)
        wrong += number(to[i]) != (float)power[i];
    std::fprintf(stderr, "%d wrong\\n", wrong);
    return wrong != 0;
}
"""


def power_on(step: str, call: str, kind: str, sizes: tuple[int, int, int], temporary: pytest.TempPathFactory) -> None:
    """A power made by a call of a step's own function: rows, power, multiprocessors."""
    words = MAIN.replace("CALL", call).replace("TYPE", kind)
    ran = run_text((PLAYBOOK / step).read_text() + words, sizes, temporary)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["Wide", "Narrow"])
@pytest.mark.parametrize("sizes", [(264, 5, 4), (136, 4, 132), (200, 6, 3)], ids=lambda s: "-".join(map(str, s)))
def test_a_plan_of_bf16_is_right_on_small_matrices(
    plan: str, sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """More tiles than blocks, tiles in part."""
    call = f"launch_hopper<{plan}>(A, B, buffer, N, P, bits, products, blocks)"
    power_on("bf16/2_one_launch_of_warpgroups.cu", call, "__nv_bfloat16", sizes, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["Wide", "Narrow"])
@pytest.mark.parametrize("sizes", [(264, 5, 4), (136, 4, 132), (201, 6, 3)], ids=lambda s: "-".join(map(str, s)))
def test_a_plan_in_three_parts_is_right_on_small_matrices(
    plan: str, sizes: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same, and rows that are no multiple of eight, whose parts are longer than they are."""
    call = f"launch_hopper<{plan}>(A, B, (__nv_bfloat16*)parts, N, P, bits, products, blocks)"
    power_on("fp32/2_one_launch_on_three_parts.cu", call, "float", sizes, tmp_path_factory)
