"""Prints what the CPU device takes per thread, barrier, shuffle and launch, in nanoseconds of wall time.

    python benchmarks/cpu_device.py

Each figure is the least of five, with all cores at work; CUDAMASTER_CPU_THREADS=1 shows one core's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cudamaster.devices.cpu.device import CpuDevice

SOURCE = r"""
#include <algorithm>
#include <chrono>

__global__ void thread_kernel(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = i * 2.0f;
}
__global__ void barrier_kernel(int rounds) {
    for (int i = 0; i < rounds; ++i)
        __syncthreads();
}
__global__ void shuffle_kernel(float* x, int rounds) {
    float value = threadIdx.x;
    for (int i = 0; i < rounds; ++i)
        value = __shfl_xor_sync(0xffffffffu, value, 1 + (i & 15));
    x[threadIdx.x] = value;
}
__global__ void product_kernel(const float* a, const float* b, float* c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; ++k)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

template <class Launch> double least_ns(Launch launch) {
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
        auto start = std::chrono::steady_clock::now();
        launch();
        std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
        best = std::min(best, taken.count());
    }
    return best;
}

int main() {
    const int n = 1 << 24, rounds = 100, size = 512;
    float* x = nullptr;
    if (cudaMalloc(&x, n * sizeof(float)) != cudaSuccess)
        return 1;
    fprintf(stderr, "simple thread          %7.2f ns\n", least_ns([&] { thread_kernel<<<n / 256, 256>>>(x, n); }) / n);
    for (int threads : {64, 256, 1024})
        fprintf(stderr, "barrier, %4d threads  %7.2f ns per thread\n", threads,
                least_ns([&] { barrier_kernel<<<65536 / threads, threads>>>(rounds); }) / (65536.0 * rounds));
    fprintf(stderr, "shuffle                %7.2f ns per lane\n",
            least_ns([&] { shuffle_kernel<<<256, 256>>>(x, rounds); }) / (65536.0 * rounds));
    fprintf(stderr, "launch of one block    %7.0f ns\n", least_ns([&] {
                for (int i = 0; i < 100; ++i)
                    thread_kernel<<<1, 32>>>(x, n);
            }) / 100);
    dim3 grid(size / 32, size / 8), block(32, 8);
    double product = least_ns([&] { product_kernel<<<grid, block>>>(x, x, x + size * size, size); });
    fprintf(stderr, "naive product          %7.2f GMAC/s\n", double(size) * size * size / product);
    return cudaDeviceSynchronize();
}
"""


def main() -> None:
    """Build the kernels, run them once and print the figures."""
    device = CpuDevice()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiled = device.compile(SOURCE, ["-O3"], "figures", folder)
        if compiled.object is None:
            raise SystemExit(compiled.log)
        linked = device.link([compiled.object], folder / "figures")
        ran = device.execute([str(folder / "figures")], 300)
        print(f"{device.hardware().figures['processor']}, {device.hardware().figures['cores']} cores")
        print(f"compile {compiled.seconds:.2f} s, link {linked.seconds:.2f} s")
        print(ran.stderr, end="")


if __name__ == "__main__":
    main()
