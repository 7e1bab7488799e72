"""Families of real kernels for three tasks, every member of which a scripted model can write: see strategies.py.

A member is a choice for each feature, such as `tile=32`. Its first line says the choices, which is how the scripted
model reads a kernel. The kinds are those of strategies/bandit.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

Choices = dict[str, int]


@dataclass(frozen=True)
class Family:
    """The kernels of one task: its features with their values (the first is where a search begins) and their kinds.

    `sweep`, `verify` and `held_out` are the sizes of its card. `normal` removes a choice that has no effect beside the
    others.
    """

    task: str
    values: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    code: Callable[[Choices], str]
    normal: Callable[[Choices], Choices]
    sweep: Mapping[str, list[int]]
    verify: tuple[Mapping[str, list[int]], ...]
    held_out: Mapping[str, list[int]]

    def write(self, choices: Choices) -> str:
        """The text of a member."""
        said = " ".join(f"{name}={value}" for name, value in choices.items())
        return f"// {said}\n{self.code(choices)}"

    def read(self, code: str) -> Choices:
        """The choices of a kernel; those where a search begins for the baseline, which says none."""
        found = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", code.split("\n", 1)[0])}
        return found or {name: values[0] for name, values in self.values.items()}

    def members(self) -> Iterator[Choices]:
        """All that differ."""
        seen = set()
        for chosen in product(*self.values.values()):
            choices = self.normal(dict(zip(self.values, chosen, strict=True)))
            if tuple(choices.values()) not in seen:
                seen.add(tuple(choices.values()))
                yield choices


def _same(choices: Choices) -> Choices:
    return choices


def _dot(choices: Choices) -> str:
    block, items, vector, shuffle = (choices[name] for name in ("block", "items", "vector", "shuffle"))
    if shuffle:
        reduce = """    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, sum);
"""
    else:
        reduce = f"""    __shared__ float part[{block}];
    part[threadIdx.x] = sum;
    for (int step = {block // 2}; step > 0; step /= 2) {{
        __syncthreads();
        if (threadIdx.x < step)
            part[threadIdx.x] += part[threadIdx.x + step];
    }}
    if (threadIdx.x == 0)
        atomicAdd(out, part[0]);
"""
    if vector == 4:
        body = """    if ((size_t)X % 16 == 0 && (size_t)Y % 16 == 0) {
        int quads = N / 4;
        const float4* X4 = (const float4*)X;
        const float4* Y4 = (const float4*)Y;
        for (int i = first; i < quads; i += stride) {
            float4 x = X4[i], y = Y4[i];
            sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
        }
        for (int i = 4 * quads + first; i < N; i += stride)
            sum += X[i] * Y[i];
    } else
        for (int i = first; i < N; i += stride)
            sum += X[i] * Y[i];
"""
    else:
        body = """    for (int i = first; i < N; i += stride)
        sum += X[i] * Y[i];
"""
    return f"""#include <cuda_runtime.h>

__global__ void dot_kernel(float* out, const float* X, const float* Y, int N) {{
    int first = blockIdx.x * {block} + threadIdx.x, stride = gridDim.x * {block};
    float sum = 0.0f;
{body}{reduce}}}

extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {{
    int blocks = (N - 1) / {block * items * vector} + 1;
    cudaMemsetAsync(out, 0, sizeof(float));
    dot_kernel<<<blocks, {block}>>>(out, X, Y, N);
}}
"""


def _transpose(choices: Choices) -> str:
    tile, pad, rows = choices["tile"], choices["pad"], choices["rows"]
    threads = f"dim3({tile}, {tile // rows})"
    if choices["shared"]:
        body = f"""    __shared__ float part[{tile}][{tile} + {pad}];
    for (int y = threadIdx.y; y < {tile}; y += {tile // rows})
        if (row + y < M && col + threadIdx.x < N)
            part[y][threadIdx.x] = A[(row + y) * N + col + threadIdx.x];
    __syncthreads();
    for (int y = threadIdx.y; y < {tile}; y += {tile // rows})
        if (col + y < N && row + threadIdx.x < M)
            B[(col + y) * M + row + threadIdx.x] = part[threadIdx.x][y];
"""
    else:
        body = f"""    for (int y = threadIdx.y; y < {tile}; y += {tile // rows})
        if (row + y < M && col + threadIdx.x < N)
            B[(col + threadIdx.x) * M + row + y] = A[(row + y) * N + col + threadIdx.x];
"""
    return f"""#include <cuda_runtime.h>

__global__ void transpose_kernel(const float* A, float* B, int M, int N) {{
    int across = (N - 1) / {tile} + 1;
    size_t row = blockIdx.x / across * (size_t){tile}, col = blockIdx.x % across * (size_t){tile};
{body}}}

extern "C" void matrix_transpose_optimized(const float* A, float* B, int M, int N) {{
    unsigned int blocks = ((N - 1) / {tile} + 1) * ((M - 1) / {tile} + 1);
    transpose_kernel<<<blocks, {threads}>>>(A, B, M, N);
}}
"""


def _product(choices: Choices) -> str:
    side, per, depth, vector = (choices[name] for name in ("side", "outputs", "depth", "vector"))
    tile = side * per
    unroll = f"#pragma unroll {choices['unroll']}"
    if not choices["shared"]:
        load = f"""    for (int k = 0; k < M; ++k)
        for (int i = 0; i < {per}; ++i)
            for (int j = 0; j < {per}; ++j) {{
                int r = row + threadIdx.y + {side} * i, c = col + threadIdx.x + {side} * j;
                if (r < M && c < M)
                    sum[i][j] += A[(size_t)r * M + k] * B[(size_t)k * M + c];
            }}
"""
    else:
        scalar = f"""for (int e = thread; e < {tile * depth}; e += {side * side}) {{
            int r = row + e / {depth}, ka = k0 + e % {depth}, kb = k0 + e / {tile}, c = col + e % {tile};
            a[e % {depth}][e / {depth}] = r < M && ka < M ? A[(size_t)r * M + ka] : 0.0f;
            b[e / {tile}][e % {tile}] = kb < M && c < M ? B[(size_t)kb * M + c] : 0.0f;
        }}"""
        if vector == 4:
            quads = f"""if (M % {tile} == 0 && M % {depth} == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0)
            for (int e = 4 * thread; e < {tile * depth}; e += {4 * side * side}) {{
                float4 x = *(const float4*)(A + (size_t)(row + e / {depth}) * M + k0 + e % {depth});
                float4 y = *(const float4*)(B + (size_t)(k0 + e / {tile}) * M + col + e % {tile});
                float xs[4] = {{x.x, x.y, x.z, x.w}}, ys[4] = {{y.x, y.y, y.z, y.w}};
                for (int i = 0; i < 4; ++i) {{
                    a[e % {depth} + i][e / {depth}] = xs[i];
                    b[e / {tile}][e % {tile} + i] = ys[i];
                }}
            }}
        else
            {scalar}"""
        else:
            quads = scalar
        load = f"""    __shared__ float a[{depth}][{tile} + 1];
    __shared__ float b[{depth}][{tile} + 1];
    int thread = threadIdx.y * {side} + threadIdx.x;
    for (int k0 = 0; k0 < M; k0 += {depth}) {{
        {quads}
        __syncthreads();
        {unroll}
        for (int k = 0; k < {depth}; ++k)
            for (int i = 0; i < {per}; ++i)
                for (int j = 0; j < {per}; ++j)
                    sum[i][j] += a[k][threadIdx.y + {side} * i] * b[k][threadIdx.x + {side} * j];
        __syncthreads();
    }}
"""
    return f"""#include <cuda_runtime.h>

__global__ void product_kernel(const float* A, const float* B, float* C, int M) {{
    int across = (M - 1) / {tile} + 1;
    int row = blockIdx.x / across * {tile}, col = blockIdx.x % across * {tile};
    float sum[{per}][{per}] = {{}};
{load}    for (int i = 0; i < {per}; ++i)
        for (int j = 0; j < {per}; ++j) {{
            int r = row + threadIdx.y + {side} * i, c = col + threadIdx.x + {side} * j;
            if (r < M && c < M)
                C[(size_t)r * M + c] = sum[i][j];
        }}
}}

extern "C" void square_matrix_mul_optimized(const float* A, const float* B, float* C, int M) {{
    unsigned int across = (M - 1) / {tile} + 1;
    product_kernel<<<across * across, dim3({side}, {side})>>>(A, B, C, M);
}}
"""


def _normal_product(choices: Choices) -> Choices:
    return choices if choices["shared"] else {**choices, "depth": 16, "vector": 1, "unroll": 1}


def _normal_transpose(choices: Choices) -> Choices:
    return choices if choices["shared"] else {**choices, "pad": 0}


FAMILIES = (
    Family(
        "dot_product",
        {"block": (256, 64, 1024), "items": (1, 4, 16), "vector": (1, 4), "shuffle": (0, 1)},
        {
            "block": "launch shape",
            "items": "registers and instruction-level parallelism",
            "vector": "memory access",
            "shuffle": "warp primitives",
        },
        _dot,
        _same,
        {"N": [524288]},
        ({"N": [1, 33, 1025]}, {"N": [65537]}),
        {"N": [1, 2000]},
    ),
    Family(
        "matrix_transpose",
        {"tile": (16, 32), "shared": (0, 1), "pad": (0, 1), "rows": (1, 4, 8)},
        {
            "tile": "launch shape",
            "shared": "shared memory",
            "pad": "shared memory",
            "rows": "registers and instruction-level parallelism",
        },
        _transpose,
        _normal_transpose,
        {"M": [1024], "N": [1024]},
        ({"M": [1], "N": [33]}, {"M": [65], "N": [63]}),
        {"M": [1, 40], "N": [1, 40]},
    ),
    Family(
        "square_matrix_mul",
        {"side": (16, 8), "outputs": (1, 2, 4), "shared": (0, 1), "depth": (16, 8), "vector": (1, 4), "unroll": (1, 8)},
        {
            "side": "launch shape",
            "outputs": "registers and instruction-level parallelism",
            "shared": "shared memory",
            "depth": "shared memory",
            "vector": "memory access",
            "unroll": "registers and instruction-level parallelism",
        },
        _product,
        _normal_product,
        {"M": [1024]},
        ({"M": [1, 33]}, {"M": [64]}),
        {"M": [1, 40]},
    ),
)
