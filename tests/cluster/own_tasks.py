"""A folder with two small tasks of a user's own, each with a kernel to try."""

from __future__ import annotations

from pathlib import Path

CARD = """\
id: {id}
name: {name}
title: {name}
category: dense
summary: Multiplies a vector by a number.
formula: y[i] = alpha * x[i] for i in 0 .. N-1
sizes: {{N: null, alpha: 1.5}}
parameters:
  - {{name: x, type: T, role: input, length: N, meaning: the vector}}
  - {{name: y, type: T, role: output, length: N, meaning: the product}}
  - {{name: alpha, type: float, meaning: the number}}
  - {{name: N, type: int, meaning: length of the vectors}}
inputs: ["uniform(x, -1, 1)"]
sweep: [{{N: [2048]}}]
verify: [{{N: [1, 33]}}]
held_out: [{{N: [1, 300], alpha: [-3.0, 3.0]}}]
held_out_large: [{{N: [1024, 2048], alpha: [-3.0, 3.0]}}]
weight: N
floor: {{bytes_read: N * element_bytes, bytes_written: N * element_bytes, operations: N}}
precisions: [fp32]
"""
KERNEL = """\
#include <cuda_runtime.h>
__global__ void {name}_kernel(const float* x, float* y, float alpha, int N) {{
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * {each};
    for (int k = 0; k < {each}; ++k)
        if (i + k < N) y[i + k] = alpha * x[i + k];
}}
extern "C" void {wrapper}(const float* x, float* y, float alpha, int N) {{
    int blocks = (N + {threads} * {each} - 1) / ({threads} * {each});
    {name}_kernel<<<blocks, {threads}>>>(x, y, alpha, N);
}}
"""
REFERENCE = """\
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void {name}_reference(const T* x, mskb::Expected& result, float alpha, int) {{
    for (size_t j = 0; j < result.wanted.size(); ++j) {{
        double product = alpha * mskb::to_double(x[result.wanted[j]]);
        result.set(j, product, std::abs(product));
    }}
}}
"""


def kernel(name: str, *, each: int = 1, threads: int = 32, optimized: bool = True) -> str:
    """A right kernel: `each` elements a thread, `threads` a block."""
    return KERNEL.format(name=name, wrapper=f"{name}_optimized" if optimized else name, each=each, threads=threads)


def made(folder: Path, names: tuple[str, ...] = ("twice", "thrice")) -> Path:
    """Write the folder: the first task has a reference, of the others the baseline is the truth."""
    for number, name in enumerate(names, 1):
        card = CARD.format(id=number, name=name)
        files = {
            f"tasks/{name}.yaml": card if number == 1 else f"{card}truth: baseline\n",
            **({f"reference/{name}.h": REFERENCE.format(name=name)} if number == 1 else {}),
            f"fp32/{name}.cu": kernel(name, optimized=False),
            f"playbook/{name}/fp32/1_blocks.cu": f"// idea: Larger blocks\n// why: Fewer of them are started.\n"
            f"// flags: -O3\n{kernel(name, threads=128)}",
        }
        for place, text in files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder
