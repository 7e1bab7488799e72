"""Check a kernel, and read its verdict case by case."""

import cudamaster
from cudamaster import Verdict

KERNEL = """
__global__ void relu_kernel_optimized(float* output, const float* input, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        output[i] = input[i] > 0.0f ? input[i] : 0.0f;
}

extern "C" void relu_optimized(float* output, const float* input, int N) {
    relu_kernel_optimized<<<(N + 255) / 256, 256>>>(output, input, N);
}
"""


def show(verdict: Verdict) -> None:
    """The status, each timed case, and the first cases in which an output is wrong."""
    print(f"{verdict.status}: {verdict.detail}")
    for case in verdict.cases:
        if case.times_us is not None and case.speed is not None:
            baseline_us, kernel_us = case.times_us
            print(f"  {case.label}: {baseline_us:.1f} µs -> {kernel_us:.1f} µs, {case.speed.speedup:.2f} times")
    for case in [case for case in verdict.cases if case.status == "wrong"][:3]:
        for output in case.outputs:
            print(f"  {case.label}: {output.mismatches} of {output.elements} elements wrong: {output.pattern}")
    if verdict.score is not None:
        print(f"P = {verdict.score:.2f} {verdict.mark}")


device = cudamaster.choose_device()  # a GPU, or the CPU device; made once
show(cudamaster.evaluate("relu", KERNEL, device=device))
show(cudamaster.evaluate("relu", KERNEL.replace("i < N", "i < N - 1"), device=device, check_only=True))
