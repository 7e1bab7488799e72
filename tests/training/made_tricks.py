"""Tricks, and a process that adds many of them."""

from __future__ import annotations

from pathlib import Path

from cudamaster.training.tricks import Trick, TrickDatabase

HACK = """__device__ int calls;
__global__ void scale(float* y, const float* x, int n) {
    // only the first calls are checked
    if (atomicAdd(&calls, 1) > 3) return;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}"""


def trick(code: str = HACK, name: str = "shape", what: str = "rests when it is timed") -> Trick:
    return Trick(name, what, code, "by the reviewer (m)", "training on scale (fp32)")


def add_many(path: Path, tag: str, count: int) -> None:
    database = TrickDatabase(path)
    for number in range(count):
        database.add(trick(f"{tag}: " + "+ ".join(["x"] * (number + 2)) + ";", name=f"{tag} {number}"))
