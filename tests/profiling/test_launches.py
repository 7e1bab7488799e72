"""Launches as a worker prints them, and occupancy, held against NVIDIA's own calculator (cuda_occupancy.h)."""

from __future__ import annotations

import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cudamaster.build.shared import redirected
from cudamaster.core import resources
from cudamaster.devices.cuda import find_nvcc
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Ran
from cudamaster.guards.object import localise
from cudamaster.profiling import launches
from cudamaster.profiling.launches import CallLaunches, Launch, Limiter, NoLaunches, SmLimits, occupancy, parse

H200 = SmLimits((9, 0), 132, 32, 2048, 32, 65536, 233472, 1024)
LAUNCH = Launch("_Z20sum_kernel_optimizedPf", 3, (64, 2, 1), (256, 1, 1), 4096, 40, 1024, 0, 6, H200)
LINE = {
    "event": "launch",
    "count": 3,
    "all_launches": 3,
    "grid": [64, 2, 1],
    "block": [256, 1, 1],
    "dynamic_shared_bytes": 4096,
    "symbol": "_Z20sum_kernel_optimizedPf",
    "registers": 40,
    "static_shared_bytes": 1024,
    "local_bytes": 0,
    "active_blocks": 6,
    "major": 9,
    "minor": 0,
    "sms": 132,
    "warp_size": 32,
    "threads_per_sm": 2048,
    "blocks_per_sm": 32,
    "registers_per_sm": 65536,
    "shared_bytes_per_sm": 233472,
    "reserved_shared_bytes": 1024,
}


def line(**changed: object) -> str:
    fields = {name: value for name, value in {**LINE, **changed}.items() if value is not None}
    return f"launch {json.dumps(fields)}\n"


def built(text: str, folder: Path) -> Path:
    """Executable of a text that needs CUDA's headers and nothing of the runtime."""
    (folder / "program.cpp").write_text(text)
    command = [str(find_nvcc()), "-std=c++17", "-cudart=none", "-I", str(resources.bench() / "include")]
    subprocess.run([*command, "program.cpp", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


def test_lines_become_launches() -> None:
    """Whatever else is printed, and what only looks like such a line, is passed over."""
    noise = 'launch a rocket\nlaunch {"count": 1}\nlaunch 3\nMSKB: launch {}\n' + line(grid=[0, 1, 1])
    found = parse(noise + line() + line(symbol="other", count=1, all_launches=9) + "end\n")
    assert found == CallLaunches((LAUNCH, replace(LAUNCH, symbol="other", count=1)), 3)
    assert (LAUNCH.blocks, LAUNCH.threads) == (128, 256)


def test_what_the_runtime_does_not_say_is_absent() -> None:
    found = parse(line(symbol=None, registers=None, active_blocks=None))
    assert found == CallLaunches((replace(LAUNCH, symbol=None, registers=None, active_blocks=None),), 3)
    found = parse(line(sms=None))
    assert found == CallLaunches((replace(LAUNCH, limits=None),), 3)
    assert occupancy(replace(LAUNCH, limits=None)) is None
    assert occupancy(replace(LAUNCH, registers=None)) is None


def ran(stderr: str = "", exit_code: int | None = 0, expired: bool = False) -> Ran:
    return Ran(exit_code, None, expired, stderr, 0.1)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (ran("nothing"), "launched no kernel"),
        (ran(line(), exit_code=70), "failed"),
        (ran(line(), exit_code=None, expired=True), "stopped after 5 s"),
    ],
)
def test_why_there_are_no_launches(outcome: Ran, reason: str) -> None:
    found = launches.record(lambda *_: outcome, JudgeRequest(judge=("judge",)), Path("run"), case="N=8", limit_s=5)
    assert isinstance(found, NoLaunches)
    assert reason in found.reason


def test_the_judge_is_asked_for_one_call_at_the_case() -> None:
    asked: list[str] = []

    def run(request: JudgeRequest, report: Path, limit_s: float) -> Ran:
        asked.extend(request.command)
        return ran(line())

    found = launches.record(run, JudgeRequest(judge=("judge",), baseline=("b",)), Path("run"), case="N=8")
    assert isinstance(found, CallLaunches)
    options = ["--cases", "none", "--case", "N=8", "--launches"]
    assert asked == ["judge", "--baseline", "b", "--candidate", "run", *options]


@pytest.mark.parametrize(
    ("changed", "blocks", "limited_by"),
    [
        ({}, 6, [Limiter.REGISTERS]),  # 40 x 32 = 1280 a warp: 12 warps in each quarter, 48 in all, 8 to a block
        ({"registers": 32}, 8, [Limiter.REGISTERS, Limiter.THREADS]),
        ({"registers": 16, "block": (32, 1, 1)}, 32, [Limiter.BLOCKS]),
        ({"registers": 16, "dynamic_shared_bytes": 113664 - 2048 - 127}, 2, [Limiter.SHARED_MEMORY]),
        ({"registers": 16, "dynamic_shared_bytes": 116736 - 2048}, 2, [Limiter.SHARED_MEMORY]),
        ({"registers": 16, "dynamic_shared_bytes": 116736 - 2047}, 1, [Limiter.SHARED_MEMORY]),
        ({"registers": 128, "block": (32, 33, 1)}, 0, [Limiter.REGISTERS]),
    ],
)
def test_occupancy_by_hand(changed: dict[str, object], blocks: int, limited_by: list[Limiter]) -> None:
    launch = replace(LAUNCH, active_blocks=None, **changed)  # type: ignore[arg-type]
    held = occupancy(launch)
    assert held is not None
    assert (held.blocks, list(held.limited_by), held.disagrees) == (blocks, limited_by, False)
    assert held.share == pytest.approx(blocks * (launch.threads // 32) / 64)
    if blocks == 0:
        assert held.waves is None
    else:
        assert held.waves == pytest.approx(128 / (132 * blocks))


def test_the_runtime_has_the_last_word() -> None:
    held = occupancy(replace(LAUNCH, active_blocks=4))
    assert held is not None
    assert held.disagrees
    assert (held.blocks, held.calculated_blocks, held.share) == (4, 6, 0.5)


CALCULATOR = """
#include <climits>
#include <cstdio>
#include <cstring>
#include "cuda_occupancy.h"
int main() {
    cudaOccDeviceProp device;
    cudaOccFuncAttributes kernel;
    cudaOccDeviceState state;
    unsigned long shared, reserved, fixed, dynamic;
    int threads;
    device.maxThreadsPerBlock = 1024;
    device.warpSize = 32;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numBlockBarriers = 1;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    while (std::scanf("%d %d %d %d %d %lu %lu %d %d %lu %lu", &device.computeMajor, &device.computeMinor,
                      &device.numSms, &device.maxThreadsPerMultiprocessor, &device.regsPerMultiprocessor, &shared,
                      &reserved, &threads, &kernel.numRegs, &fixed, &dynamic) == 11) {
        device.regsPerBlock = device.regsPerMultiprocessor;
        device.sharedMemPerMultiprocessor = shared;
        device.reservedSharedMemPerBlock = reserved;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerBlockOptin = shared - reserved;
        kernel.sharedSizeBytes = fixed;
        kernel.maxDynamicSharedSizeBytes = dynamic;
        cudaOccResult result;
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic);
        std::printf("%d %d %u\\n", error, result.activeBlocksPerMultiprocessor, result.limitingFactors);
    }
}
"""
FACTORS = {Limiter.THREADS: 1, Limiter.REGISTERS: 2, Limiter.SHARED_MEMORY: 4, Limiter.BLOCKS: 8}
GPUS = [
    SmLimits((7, 5), 40, 32, 1024, 16, 65536, 65536, 0),
    SmLimits((8, 0), 108, 32, 2048, 32, 65536, 167936, 1024),
    SmLimits((8, 6), 84, 32, 1536, 16, 65536, 102400, 1024),
    SmLimits((8, 9), 128, 32, 1536, 24, 65536, 102400, 1024),
    H200,
    SmLimits((10, 0), 148, 32, 2048, 32, 65536, 233472, 1024),
    SmLimits((12, 0), 170, 32, 1536, 24, 65536, 102400, 1024),
]


@pytest.mark.nvcc
def test_occupancy_is_that_of_nvidias_calculator(tmp_path: Path) -> None:
    """On seven kinds of GPU, with what limits it, over block sizes, registers and both kinds of shared memory."""
    calculator = built(CALCULATOR, tmp_path)
    shapes = itertools.product(
        (1, 32, 33, 96, 128, 160, 256, 320, 384, 512, 768, 1024),
        (8, 16, 24, 32, 33, 40, 48, 56, 64, 72, 80, 96, 104, 128, 168, 232, 255),
        ((0, 0), (100, 0), (1024, 0), (4096, 4000), (0, 20000), (0, 40001), (16384, 31000)),
    )
    asked = [
        (gpu, Launch(None, 1, (1, 1, 1), (threads, 1, 1), dynamic, registers, fixed, limits=gpu))
        for threads, registers, (fixed, dynamic) in shapes
        for gpu in GPUS
    ]
    text = "".join(
        f"{gpu.compute_capability[0]} {gpu.compute_capability[1]} {gpu.sms} {gpu.threads} {gpu.registers} "
        f"{gpu.shared_bytes} {gpu.reserved_shared_bytes} {launch.threads} {launch.registers} "
        f"{launch.static_shared_bytes} {launch.dynamic_shared_bytes}\n"
        for gpu, launch in asked
    )
    done = subprocess.run([calculator], input=text, capture_output=True, text=True, check=True)
    answers = [tuple(map(int, answer.split())) for answer in done.stdout.splitlines()]
    assert len(answers) == len(asked) > 9000
    limiting = set()
    for (gpu, launch), (error, blocks, factors) in zip(asked, answers, strict=True):
        held = occupancy(launch)
        assert held is not None
        assert error == 0
        assert held.blocks == blocks, (gpu, launch)
        if blocks:
            assert sum(FACTORS[limiter] for limiter in held.limited_by) == factors & 15, (gpu, launch)
            limiting |= set(held.limited_by)
    assert limiting == set(Limiter)


# The runtime's answers are made up here: what is held is that they reach the lines, and which launches are noted.
RECORDER = """
#include "mskb/launches.h"
const void *const first = reinterpret_cast<void*>(1), *const second = reinterpret_cast<void*>(2);
extern "C" {
cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
    *name = "_Z20sum_kernel_optimizedPf";
    return kernel == first ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    attributes->numRegs = 40;
    attributes->sharedSizeBytes = 1024;
    return kernel == first ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t bytes) {
    *blocks = threads == 256 && bytes == 4096 ? 6 : 1;
    return kernel == first ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t cudaGetDevice(int*) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
}
int main() {
    mskb::launches.note(second, dim3(9), dim3(9), 9);
    for (int call = 0; call < 2; ++call) { // of which the second counts
        mskb::launches.start();
        for (int i = 0; i < 3; ++i)
            mskb::launches.note(first, dim3(64, 2), dim3(256), 4096);
        for (int i = 0; i < 5; ++i)
            mskb::launches.note(second, dim3(8), dim3(32, 4), 0);
        mskb::launches.stop();
        mskb::launches.note(first, dim3(9), dim3(9), 9);
    }
    mskb::launches.print();
    mskb::launches.start();
    for (int i = 0; i < 200; ++i)
        mskb::launches.note(first, dim3(1 + i % 100), dim3(256), 0);
    mskb::launches.print();
}
"""


@pytest.mark.nvcc
def test_what_a_worker_prints_is_what_is_read(tmp_path: Path) -> None:
    """Only launches while recording, by kind; a long list is cut, and all are counted."""
    done = subprocess.run([built(RECORDER, tmp_path)], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines(keepends=True)
    nameless = Launch(None, 5, (8, 1, 1), (32, 4, 1), 0, limits=H200)
    assert parse("".join(lines[:2])) == CallLaunches((LAUNCH, nameless), 8)
    many = parse("".join(lines[2:]))
    assert isinstance(many, CallLaunches)
    assert many.total == 200
    assert [launch.grid[0] for launch in many.launches] == list(range(1, 65))
    assert {launch.count for launch in many.launches} == {2}


@pytest.mark.nvcc
def test_every_way_to_launch_goes_through_the_ledger(tmp_path: Path) -> None:
    """What nvcc makes of kernel<<<>>>, and the three functions that a wrapper may call."""
    (tmp_path / "k.cu").write_text(
        """__global__ void set_kernel_optimized(float* p) { *p = 1; }
        extern "C" void wrapper(float* p) {
            void* arguments[] = {&p};
            cudaLaunchConfig_t config{};
            set_kernel_optimized<<<1, 1>>>(p);
            cudaLaunchKernel(set_kernel_optimized, 1, 1, arguments, 0, 0);
            cudaLaunchCooperativeKernel(set_kernel_optimized, 1, 1, arguments, 0, 0);
            cudaLaunchKernelEx(&config, set_kernel_optimized, p);
        }"""
    )
    command = [str(find_nvcc()), "-std=c++17", "-arch=sm_90", "-c", "k.cu", "-o", "k.o"]
    subprocess.run(command, cwd=tmp_path, check=True)

    def open_ends(name: str) -> set[str]:
        listed = subprocess.run(["nm", "-u", tmp_path / name], capture_output=True, text=True, check=True)
        return {line.split()[-1] for line in listed.stdout.splitlines() if "aunch" in line}

    plain = open_ends("k.o")
    assert {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"} <= plain
    localise(tmp_path / "k.o", "wrapper", tmp_path / "k.local.o", redirected())
    assert open_ends("k.local.o") == {f"mskb_{name}" for name in plain}
