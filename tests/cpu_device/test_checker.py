"""The checker of the CPU device: what it finds in kernels, what it does not report, and how a verdict shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudamaster.core.errors import DeviceError
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran
from cudamaster.faults import cpu_checker
from cudamaster.faults.compute_sanitizer import Tool
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench


@pytest.fixture(scope="module")
def program(build_checked):
    """races.cu, checked."""
    return build_checked("races").executable


def run(program: Path, what: str) -> Ran:
    return CpuDevice().execute([str(program), what], 60)


def kinds(ran: Ran) -> set[str]:
    """Kinds of what was found."""
    lines = [line for line in ran.stderr.splitlines() if line.startswith(cpu_checker.MARK)]
    return {json.loads(line[len(cpu_checker.MARK) :])["kind"] for line in lines}


def test_honest_kernels_raise_nothing(program):
    """Tiles, tickets of the last block, chains of blocks, locks, flags of warps, grid barriers, vectors, bytes."""
    ran = run(program, "honest")
    assert (ran.exit_code, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("no-barrier", "race"),
        ("no-barrier-in-loop", "race"),
        ("no-warp", "race"),
        ("half-a-warp", "race"),
        ("no-fence", "race"),
        ("fenced-too-early", "race"),
        ("no-barrier-before-ticket", "race"),
        ("chain-without-fence", "race"),
        ("not-told", "race"),
        ("plain-flags", "race"),
        ("no-lock", "race"),
        ("cleared-late", "race"),
        ("read-early", "race"),
        ("last-wins", "race"),
        ("no-grid", "race"),
        ("handed-on-unfenced", "race"),
        ("overlap", "race"),
        ("unwritten-shared", "unwritten"),
        ("unwritten", "unwritten"),
        ("no-barrier-by-value", "race"),
        ("no-barrier-moved", "race"),
        ("no-barrier-cleared", "race"),
        ("moved-past-the-end", "outside"),
        ("unwritten-by-value", "unwritten"),
        ("added-to-nothing", "unwritten"),
        ("past-the-end", "outside"),
        ("before-the-start", "outside"),
        ("nowhere", "outside"),
        ("past-static-shared", "outside"),
        ("past-dynamic-shared", "outside"),
        ("misaligned", "misaligned"),
    ],
)
def test_a_fault_is_found(program, what, kind):
    """Each is reported with its kind, and the process ends as after any fault."""
    ran = run(program, what)
    assert kind in kinds(ran), ran.stderr
    assert ran.exit_code == 70
    assert "cuda device fault: kernel" in ran.stderr


TASK = "matrix_transpose"
TILED = """\
#include <cuda_runtime.h>
__global__ void tile_kernel_optimized(const float* __restrict__ from, float* to, int rows, int columns) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < columns && y < rows)
        tile[threadIdx.y][threadIdx.x] = from[size_t(y) * columns + x];
    BARRIER
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    if (x < rows && y < columns)
        to[size_t(y) * rows + x] = tile[threadIdx.x][threadIdx.y];
}
"""


def transposed(barrier: str) -> Candidate:
    """A transposition through tiles, with the wrapper that the task asks for."""
    wrapper = f"""\
{cards.load(TASK).declaration(Precision.FP32)} {{
    tile_kernel_optimized<<<dim3((N + 31) / 32, (M + 31) / 32), dim3(32, 32)>>>(A, B, M, N);
}}
"""
    code = TILED.replace("BARRIER", barrier) + wrapper
    return Candidate(TASK, Precision.FP32, code, CpuDevice.default_command)


@pytest.fixture(scope="module")
def bench() -> Workbench:
    """On the smaller half of the cases, which have several blocks, too."""
    fields = cards.load(TASK).model_dump()
    few = {"verify": fields["verify"][:6], "held_out": [{"M": [1, 200], "N": [1, 200]}]}
    return Workbench(cards.TaskCard.model_validate({**fields, **few}), Precision.FP32, CpuDevice(), modelled=False)


@pytest.mark.slow
def test_a_verdict_names_lines_threads_and_the_variable(bench):
    """Without its barrier the kernel is refused, whatever else is wrong with it; the log quotes both lines."""
    verdict = bench.evaluate(transposed(""), check_only=True)
    assert verdict.status is Status.FAULT
    assert (
        "Race without a barrier between: read here, write in line 6 (tile_kernel_optimized, line 10)" in verdict.detail
    )
    assert "6 | tile[threadIdx.y][threadIdx.x] = from[" in verdict.log
    assert "10 | to[size_t(y) * rows + x] = tile[threadIdx.x][threadIdx.y];" in verdict.log
    assert "the shared variable tile, at byte" in verdict.log
    assert "in block (0,0,0)" in verdict.log


@pytest.mark.slow
def test_with_its_barrier_it_is_right(bench):
    assert bench.evaluate(transposed("__syncthreads();"), check_only=True).status is Status.CORRECT


@pytest.mark.slow
def test_sanitize_tells_it_by_tool(bench):
    """The findings stand under the tools that would find them on a GPU; the others are clean.

    Of synccheck, which nothing here stands for, nothing is said.
    """
    reports = {report.tool: report for report in bench.sanitize(transposed(""), tuple(Tool))}
    assert set(reports) == {Tool.MEMCHECK, Tool.RACECHECK, Tool.INITCHECK}
    assert reports[Tool.RACECHECK].findings
    assert reports[Tool.MEMCHECK].clean
    assert all(report.clean for report in bench.sanitize(transposed("__syncthreads();"), tuple(Tool)))


def test_it_does_not_speak_for_synccheck(bench):
    """A barrier in each of two branches, which synccheck refuses, is not looked for: to say "clean" would be a lie."""
    branches = transposed("if (threadIdx.x & 1) __syncthreads(); else __syncthreads();")
    with pytest.raises(DeviceError, match="nothing of what synccheck finds"):
        bench.sanitize(branches, (Tool.SYNCCHECK,))


@pytest.mark.slow
def test_a_buffer_is_named_by_its_parameter(bench):
    """A read past the end of A names the parameter, and how far past it was."""
    code = transposed("__syncthreads();").code.replace(
        "from[size_t(y) * columns + x]", "from[size_t(y) * columns + x + 1]"
    )
    verdict = bench.evaluate(Candidate(TASK, Precision.FP32, code, CpuDevice.default_command), check_only=True)
    assert verdict.status is Status.FAULT
    assert "Read of 4 bytes outside of the buffer of from" in verdict.detail


def test_what_is_no_finding_is_passed_over(tmp_path):
    """A kernel may print what it likes."""
    said = f"{cpu_checker.MARK}no JSON\n{cpu_checker.MARK}{{}}\nhello"
    assert all(report.clean for report in cpu_checker.reports(said, tmp_path / "none", ""))
    assert cpu_checker.without_findings(said) == "hello"
