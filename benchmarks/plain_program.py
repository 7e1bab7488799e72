"""A second way to a speedup: baseline and kernel in one plain program, with a clock and a memory of its own.

    python benchmarks/plain_program.py [TASK-PRECISION...] [--report results/h200/report.json] [--largest-mb 128]

For each task it takes the best kernel of the report and writes a program: both wrappers in one process that has
allocated and freed before, buffers of cudaMalloc, calls in turn with a cold L2 cache, whole calls by the host's clock.
The table has its ratio of medians beside that of the report, at the largest timed case whose buffers take no more than
LARGEST_MB.
Inputs are the harness's (`--dump`), so that a sparse matrix is one. Nothing else is shared with it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudamaster.core.expressions import evaluate
from cudamaster.core.values import Precision
from cudamaster.devices.cuda import CudaDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.report import saved
from cudamaster.report.data import TaskResult
from cudamaster.tasks import cards, held_out
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.workbench.evaluation import Workbench

TURNS, WARMUPS = 200, 10
MAIN = r"""
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
template <class T> T from(double v) { return static_cast<T>(v); }
template <> __nv_bfloat16 from(double v) { return __float2bfloat16(static_cast<float>(v)); }
#define OK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); std::exit(1); } } while (0)
template <class T> T* filled(const char* path, size_t n) {
    std::vector<T> host(std::max<size_t>(n, 1));
    if (FILE* file = path[0] ? std::fopen(path, "rb") : nullptr) {
        std::vector<double> numbers(n);
        if (std::fread(numbers.data(), 8, n, file) != n) std::exit(2);
        std::fclose(file);
        for (size_t i = 0; i < n; ++i) host[i] = from<T>(numbers[i]);
    }
    T* data = nullptr;
    OK(cudaMalloc(&data, host.size() * sizeof(T)));
    OK(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return data;
}
__global__ void read_all(const float4* data, size_t n, float* out) {
    float sum = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) sum += data[i].x;
    if (sum == 12345.0f) *out = sum;
}
DECLARATIONS
int main() {
    std::srand(7); // a life before the calls
    std::vector<void*> blocks;
    for (int k = 0; k < 300; ++k) {
        void* block = nullptr;
        OK(cudaMalloc(&block, size_t{256} << std::rand() % 14));
        blocks.push_back(block);
        if (blocks.size() > 60) { OK(cudaFree(blocks[std::rand() % 60])); blocks.clear(); }
    }
BUFFERS
    const size_t cold = size_t{512} << 20;
    float4* scratch = nullptr; float* sink = nullptr;
    OK(cudaMalloc(&scratch, cold)); OK(cudaMalloc(&sink, 4)); OK(cudaMemset(scratch, 0, cold));
    std::vector<double> took[2];
    for (int turn = 0; turn < TURNS; ++turn)
        for (int side = 0; side < 2; ++side) {
            bool optimized = (side + turn) % 2;
RESTORE
            read_all<<<1056, 256>>>(scratch, cold / 16, sink);
            OK(cudaDeviceSynchronize());
            auto start = std::chrono::steady_clock::now();
            if (optimized) { OPTIMIZED; } else { BASELINE; }
            OK(cudaDeviceSynchronize());
            took[optimized].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
    for (auto& times : took) {
        times.erase(times.begin(), times.begin() + WARMUPS);
        std::sort(times.begin(), times.end());
        std::printf("%.3f ", times[times.size() / 2] * 1e6);
    }
}
"""


def program(card: TaskCard, precision: Precision, case: Case, inputs: Path) -> str:
    """The main function; baseline and kernel are files of their own."""
    declarations = [f"{card.declaration(precision, optimized=one)};" for one in (False, True)]
    buffers, restore, arguments = [], [], []
    for p in card.parameters:
        kind = p.element_type(precision)
        if p.length is None:
            arguments.append(f"from<{kind}>({float(case.values[p.name])!r})")
            continue
        count = int(evaluate(str(p.length), case.values))
        path = inputs / f"0.{p.name}.input"
        buffers.append(f'    {kind}* {p.name} = filled<{kind}>("{path if path.exists() else ""}", {count});')
        if p.role == "inout":
            buffers.append(f'    {kind}* {p.name}_first = filled<{kind}>("{path}", {count});')
            to = f"{p.name}, {p.name}_first, sizeof({kind}) * {count}, cudaMemcpyDeviceToDevice"
            restore.append(f"            OK(cudaMemcpy({to}));")
        arguments.append(p.name)
    passed = ", ".join(arguments)
    wrapper = card.wrapper(precision)
    filled = {
        "DECLARATIONS": "\n".join(declarations),
        "BUFFERS": "\n".join(buffers),
        "RESTORE": "\n".join(restore),
        "OPTIMIZED": f"{wrapper}_optimized({passed})",
        "BASELINE": f"{wrapper}({passed})",
        "TURNS": str(TURNS),
        "WARMUPS": str(WARMUPS),
    }
    return re.sub(r"\b(" + "|".join(filled) + r")\b", lambda m: filled[m[0]], MAIN)


def built(result: TaskResult, device: CudaDevice, largest: float, folder: Path) -> tuple[str, Path]:
    """The label of the case, and the program."""
    card, precision = cards.load(result.task), Precision(result.precision)
    timed = [(card.footprint_bytes(case, precision), case) for case in card.cases if case.sweep]
    fitting = [case for taken, case in timed if taken <= largest] or [min(timed, key=lambda one: one[0])[1]]
    case = max(fitting, key=lambda one: one.weight)
    builder = Workbench(card, precision, device)._builder
    request = JudgeRequest(
        judge=(str(builder.judge()),),
        baseline=(str(builder.baseline_worker()),),
        cases="none",
        labels=(held_out.argument(case),),
        calls=0,
        baseline_only=True,
        others=("--dump", str(folder)),
    )
    dumped = subprocess.run(request.command, capture_output=True, text=True, check=False)
    if dumped.returncode != 0:
        sys.exit(f"{result.task}: {dumped.stderr or dumped.stdout}")
    assert result.best is not None
    for name, text in (
        ("baseline.cu", card.baseline(precision)),
        ("kernel.cu", result.best.code),
        ("main.cu", program(card, precision, case, folder)),
    ):
        (folder / name).write_text(text)
    flags = [
        word for word in result.best.command.split()[1:] if word not in ("-c", "-o", "candidate.cu", "candidate.o")
    ]
    nvcc = ["nvcc", f"-arch={device.gpu.architecture}"]
    for name, options in (("baseline", ["-O3"]), ("kernel", flags), ("main", ["-O2"])):
        standard = [] if any(option.startswith("-std") for option in options) else ["-std=c++17"]
        words = [*nvcc, *(option for option in options if option not in nvcc), *standard, "-c", f"{name}.cu"]
        subprocess.run([*words, "-o", f"{name}.o"], cwd=folder, check=True)
    subprocess.run([*nvcc, "main.o", "baseline.o", "kernel.o", "-o", "main"], cwd=folder, check=True)
    return case.label, folder / "main"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TASK-PRECISION")
    parser.add_argument("--report", type=Path, default=Path("results/h200/report.json"))
    parser.add_argument("--largest-mb", type=float, default=128)
    given = parser.parse_args()
    device, report = CudaDevice(), saved.read(given.report)
    results = [
        result
        for result in report.results
        if (not given.names or f"{result.task}-{result.precision}" in given.names) and result.best and result.improved
    ]
    print("| task | case | here: baseline, kernel, us | ratio | report: baseline, kernel, us | ratio | apart |")
    print("|---|---|--:|--:|--:|--:|--:|")
    apart: list[float] = []
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(8) as pool:
        folders = [Path(top) / str(number) for number in range(len(results))]
        for folder in folders:
            folder.mkdir()
        todo = [
            pool.submit(built, result, device, given.largest_mb * 2**20, folder)
            for result, folder in zip(results, folders, strict=True)
        ]
        programs = [each.result() for each in todo]
        for result, (label, path) in zip(results, programs, strict=True):
            ran = subprocess.run([path], capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                print(f"| {result.task}-{result.precision} | {label} | {ran.stderr.strip()} | | | | |", flush=True)
                continue
            ours = [float(us) for us in ran.stdout.split()]
            reported = next(case for case in result.cases if case.label == label)
            assert reported.baseline_us is not None
            assert reported.candidate_us is not None
            there = (reported.baseline_us, reported.candidate_us)
            ratios = ours[0] / ours[1], there[0] / there[1]
            apart.append(ratios[0] / ratios[1] - 1)
            print(
                f"| {result.task}-{result.precision} | {label} | {ours[0]:.1f}, {ours[1]:.1f} | {ratios[0]:.2f} "
                f"| {there[0]:.1f}, {there[1]:.1f} | {ratios[1]:.2f} | {100 * apart[-1]:+.0f} % |",
                flush=True,
            )
    if apart:
        far = [abs(one) for one in apart]
        print(
            f"\n{len(apart)} tasks: median {100 * statistics.median(far):.1f} % apart, at most {100 * max(far):.0f} %"
        )


if __name__ == "__main__":
    main()
