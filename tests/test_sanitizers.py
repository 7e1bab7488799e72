"""Reading what compute-sanitizer writes, on text recorded on an H200 (version 2025.3.1).

The files in sanitizers/ hold the first of many equal errors and the true summaries; the program was called faulty.cu.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudamaster.cli import main
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Ran
from cudamaster.faults import compute_sanitizer
from cudamaster.faults.compute_sanitizer import SanitizerReport, Tool, parse
from cudamaster.guards.names import forbidden
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

DATA = Path(__file__).parent / "sanitizers"
KERNEL = Path(__file__).parent.parent / "cudamaster/playbook/dot_product/fp32/1_shuffle_reduction.cu"

# Lines as in the recorded program; what they hold is told apart by their number.
REGION = "\n".join(f"  statement_{line}();" for line in range(1, 14))
# As the vendor documents it, with names of ours; analysis is the mode that is asked for.
ANALYSIS = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel_optimized(int *, int *)+0x90 in candidate.cu:4
=========     and Read access at sum_kernel_optimized(int *, int *)+0x100 in candidate.cu:5 [508 hazards]
=========     and Read access at sum_kernel_optimized(int *, int *)+0x140 in candidate.cu:7 [12 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARP_LEVEL = """\
========= COMPUTE-SANITIZER
========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :
=========     Write Thread (35,0,0) at sum_kernel_optimized(int *, int *)+0x90 in candidate.cu:4
=========     Read Thread (32,0,0) at sum_kernel_optimized(int *, int *)+0x120 in candidate.cu:6
=========     Current Value : 35
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
INLINED = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Invalid arguments
=========     at __cuda_sm70_warpsync+0x30
=========     by thread (0,0,0) in block (0,0,0)
=========     Device Frame:__syncwarp(unsigned int)+0xf0 in sm_30_intrinsics.hpp:110
=========     Device Frame:reduce(float)+0x30 in candidate.cu:3
=========     Device Frame:void sum_kernel_optimized<(int)4>(int *)+0x3c0 in candidate.cu:9
=========
========= ERROR SUMMARY: 1 error
"""
DEADLOCK = """\
========= COMPUTE-SANITIZER
========= Barrier called by threads starting at (32,0,0) in block (1,0,0), (active mask: 0xffffffff) at \
sum_kernel_optimized()+0x2b0 in candidate.cu:6
=========
========= ERROR SUMMARY: 1 error
"""
# Recorded where there is no driver.
NO_DRIVER = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Error: couldn't find exit code.
"""
UNTRACKED = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error while launching sum_kernel_optimized and \
didn't track the launch. Errors might go undetected. (Unable to allocate enough memory to perform the requested \
operation)
========= ERROR SUMMARY: 0 errors
"""


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text().replace("faulty.cu", "candidate.cu")


@pytest.mark.parametrize(
    ("name", "tool", "what", "kernel", "line", "count", "unprinted"),
    [
        ("out_of_bounds", Tool.MEMCHECK, "Invalid __global__ write of size 4 bytes", "oob", 4, 3, 260),
        ("misaligned", Tool.MEMCHECK, "Invalid __global__ write of size 16 bytes", "misaligned", 12, 1, 0),
        ("shared", Tool.MEMCHECK, "Invalid __shared__ write of size 4 bytes", "shared_oob", 13, 2, 62),
        ("race", Tool.RACECHECK, "Race without a barrier between: write here, read in line 8", "race", 7, 3, 1022),
        ("uninitialized", Tool.INITCHECK, "Uninitialized __global__ memory read of size 4 bytes", "init", 10, 3, 247),
        ("barrier", Tool.SYNCCHECK, "Barrier error detected. Divergent thread(s) in warp", "sync", 11, 3, 13),
    ],
)
def test_equal_errors_are_one_finding(
    name: str, tool: Tool, what: str, kernel: str, line: int, count: int, unprinted: int
) -> None:
    """Each recorded fault is one finding with kernel and line; what the tool only counted is known as such."""
    report = parse(recorded(name), tool)
    [found] = report.findings
    assert (found.what, found.kernel, found.line) == (what, f"{kernel}_kernel_optimized", line)
    assert (found.count, report.unprinted) == (count, unprinted)
    assert not report.clean
    assert report.failure is None


def test_the_first_example_stays() -> None:
    """A finding tells the first thread and how far off its access was, without addresses."""
    [found] = parse(recorded("out_of_bounds"), Tool.MEMCHECK).findings
    assert found.example == "thread (250,0,0) in block (0,0,0)"
    assert found.detail == "Access is out of bounds and is 1 bytes after the nearest allocation of size 1,000 bytes"
    [race] = parse(recorded("race"), Tool.RACECHECK).findings
    assert race.example == "thread (159,0,0) and thread (96,0,0) in block (0,0,0)"
    assert race.other_line == 8


def test_all_kernels_but_the_harness_s_are_looked_at() -> None:
    """A candidate's may have any name. Those of the harness have one that no candidate can have."""
    made = compute_sanitizer.command(Path("/opt/sanitizer"), Tool.MEMCHECK, ["./worker"], Path("log"))
    assert made[made.index("--kernel-name-exclude") + 1] == "kernel_substring=_ZN4mskb"
    assert "--kernel-name" not in made
    for name in ("a_ZN4mskb", "_ZN4mskb11mask_kernel", "mskb", "my_mskb_kernel"):
        assert forbidden(name, "", "(") is not None


def test_a_clean_run() -> None:
    report = parse(recorded("clean"), Tool.MEMCHECK)
    assert report == SanitizerReport(Tool.MEMCHECK)
    assert (report.clean, report.summary, report.explain(REGION)) == (True, "clean", "memcheck: clean")


def test_errors_of_the_runtime_are_no_findings() -> None:
    """A call that failed belongs to no kernel: alone it leaves the run clean, and beside a fault it is not counted."""
    text = recorded("misaligned")
    start, end = text.index("========= Invalid"), text.index("========= Program hit")
    alone = (text[:start] + text[end:]).replace("2 errors", "1 error")
    assert "cudaErrorLaunchFailure" in alone
    assert parse(alone, Tool.MEMCHECK).clean


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "wrote nothing"),
        ("the argument for option '--tool' is invalid\n", "wrote nothing"),
        ("========= COMPUTE-SANITIZER\n", "no summary"),
        (NO_DRIVER, "Target application terminated before first instrumented API call; couldn't find exit code."),
        (UNTRACKED, "Errors might go undetected"),
        ("========= COMPUTE-SANITIZER\n========= Device not supported\n", "Device not supported"),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 7 errors\n", "counted 7 errors"),
        ("========= COMPUTE-SANITIZER\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "no summary"),
    ],
)
def test_a_tool_that_fails_is_never_clean(text: str, said: str) -> None:
    """A missing log, a cut one, the tool's own messages and errors that cannot be read are reported as such."""
    report = parse(text, Tool.MEMCHECK)
    assert report.failure is not None
    assert said in report.failure
    assert not report.clean
    assert said in report.explain(REGION)


@pytest.mark.parametrize("name", ["out_of_bounds", "race", "uninitialized", "barrier", "clean"])
def test_a_log_cut_anywhere_is_not_clean(name: str) -> None:
    """Whatever is missing at its end, and errors that were read before stand."""
    text = recorded(name)
    end = text.index(" SUMMARY:")
    for cut in range(0, end, 7):
        assert not parse(text[:cut], Tool.MEMCHECK).clean, text[:cut]
    assert bool(parse(text[:end], Tool.MEMCHECK).findings) == (name != "clean")


def test_thousands_of_equal_errors() -> None:
    """They are one finding with a count, and their text stays short."""
    head, *rest = recorded("out_of_bounds").partition("========= Invalid")
    error = "".join(rest).partition("========= \n")[0] + "========= \n"
    report = parse(f"{head}{5000 * error}========= ERROR SUMMARY: 5000 errors\n", Tool.MEMCHECK)
    assert [found.count for found in report.findings] == [5000]
    assert report.unprinted == 0
    assert len(report.explain(REGION)) < 400


def test_an_analysis_of_races() -> None:
    """Each access that races with the first one is a finding, counted in hazards, with both lines quoted."""
    report = parse(ANALYSIS, Tool.RACECHECK)
    assert [(f.line, f.other_line, f.count) for f in report.findings] == [(4, 5, 508), (4, 7, 12)]
    assert report.unprinted == 0
    assert report.explain(REGION) == (
        "racecheck: 2 findings\n"
        "508 x Race without a barrier between: write here, read in line 5 (sum_kernel_optimized, line 4)\n"
        "    4 | statement_4();\n"
        "    5 | statement_5();\n"
        "12 x Race without a barrier between: write here, read in line 7 (sum_kernel_optimized, line 4)\n"
        "    4 | statement_4();\n"
        "    7 | statement_7();"
    )


def test_a_race_with_an_unknown_place_is_a_finding() -> None:
    """What cannot be read in full is not lost."""
    text = ANALYSIS.replace("sum_kernel_optimized(int *, int *)+0x1", "?")
    [found] = parse(text, Tool.RACECHECK).findings
    assert (found.kernel, found.line, found.other_line) == ("sum_kernel_optimized", 4, None)


def test_a_warning_is_shown_and_fails_nothing() -> None:
    report = parse(WARP_LEVEL, Tool.RACECHECK)
    assert report.clean
    [warning] = report.warnings
    assert (warning.line, warning.other_line, warning.detail) == (4, 6, "Warp Level Programming")
    assert "(warning) Race" in report.explain(REGION)


def test_the_line_is_the_regions_where_functions_are_inlined() -> None:
    """Of the functions that an error lies in, the innermost of the region gives the line, the outermost the kernel."""
    [found] = parse(INLINED, Tool.SYNCCHECK).findings
    assert (found.kernel, found.line) == ("sum_kernel_optimized", 3)


def test_a_title_that_holds_thread_and_place() -> None:
    [found] = parse(DEADLOCK, Tool.SYNCCHECK).findings
    assert (found.what, found.kernel, found.line) == ("Barrier called", "sum_kernel_optimized", 6)
    assert found.example == "threads starting at (32,0,0) in block (1,0,0)"


def test_an_explanation_quotes_the_region() -> None:
    """A finding is a line with count, kernel, line and example, and the region's text below it."""
    report = parse(recorded("uninitialized"), Tool.INITCHECK)
    assert report.explain(REGION) == (
        "initcheck: 1 finding; 247 more errors not printed\n"
        "3 x Uninitialized __global__ memory read of size 4 bytes (init_kernel_optimized, line 10), "
        "e.g. thread (0,0,0) in block (0,0,0)\n"
        "    10 | statement_10();"
    )
    assert "statement" not in report.explain("too short")


def test_an_explanation_is_short() -> None:
    """However many lines are wrong, and however long they are."""
    text = "".join(ANALYSIS.replace(":4\n", f":{line}\n") for line in range(1, 14))
    explained = parse(text, Tool.RACECHECK).explain(REGION.replace("();", f"({'x' * 5000});"))
    assert len(explained.splitlines()) <= 20
    assert explained.endswith("and 20 more")
    assert max(map(len, explained.splitlines())) < 200


def test_the_command_runs_the_worker() -> None:
    """The worker's own command comes last and whole, and the log goes to the file."""
    for tool in Tool:
        words = compute_sanitizer.command(Path("compute-sanitizer"), tool, ["worker", "--exact"], Path("log.txt"))
        assert words[-2:] == ["worker", "--exact"]
        assert words[words.index("--tool") + 1] == tool.value
        assert words[words.index("--log-file") + 1] == "log.txt"


@pytest.mark.skipif(compute_sanitizer.find() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", Tool)
def test_the_installed_tool_takes_the_command(tool: Tool, tmp_path: Path) -> None:
    """An option that it does not know would leave no log. The program is no CUDA program, and that is said."""
    path = compute_sanitizer.find()
    assert path is not None
    log = tmp_path / "log.txt"
    subprocess.run(compute_sanitizer.command(path, tool, ["true"], log), check=False, timeout=120, capture_output=True)
    assert "Target application terminated" in (parse(log.read_text(), tool).failure or "")


class Recording(CpuDevice):
    """Takes what it is to run, in place of a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[JudgeRequest] = []

    def run(self, request: JudgeRequest, report: Path, limit_s: float, **_: object) -> Ran:  # type: ignore[override]
        """A clean report of the tool's."""
        self.asked.append(request)
        return Ran(0, None, expired=False, stderr="========= ERROR SUMMARY: 0 errors\n", seconds=0.0)


def test_memcheck_alone_sees_light_timed_cases() -> None:
    """No verification case may launch their kernels, as those of one cluster in fft; racecheck cannot follow these."""
    device = Recording()
    bench = Workbench(cards.load("fft"), Precision.FP32, device, seed=1, modelled=False)
    for tool in (Tool.MEMCHECK, Tool.RACECHECK):
        bench._faults._sanitize_with(Path("compute-sanitizer"), tool, Path("worker"), 1)
    memory, races = device.asked
    assert memory.cases == races.cases == "verify"
    assert [label.partition(",")[0] for label in memory.labels] == [f"N={1024 << k}" for k in range(5)]
    assert races.labels == ()


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "compute-sanitizer"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CUDAMASTER_COMPUTE_SANITIZER", str(mine))
    assert compute_sanitizer.find() == mine


@pytest.mark.slow
def test_a_clean_kernel_on_the_command_line_without_a_gpu() -> None:
    """The CPU device's own checker answers, by the tools' names.

    Of synccheck it looks for nothing, so that it does not call a kernel clean there.
    """
    done = CliRunner().invoke(main, ["sanitize", "dot_product", str(KERNEL), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert {tool for tool in Tool if f"{tool}: clean" in done.output} == set(Tool) - {Tool.SYNCCHECK}
    done = CliRunner().invoke(main, ["sanitize", "dot_product", str(KERNEL), "--device", "cpu", "--tool", "synccheck"])
    assert done.exit_code == 4, done.output


def test_a_race_on_the_command_line_without_a_gpu(tmp_path: Path) -> None:
    """The CPU device's own checker finds it where a barrier is missing."""
    racing = tmp_path / "racing.cu"
    racing.write_text(re.sub(r"__syncthreads\(\);", "", KERNEL.read_text()))
    done = CliRunner().invoke(main, ["sanitize", "dot_product", str(racing), "--device", "cpu", "--tool", "racecheck"])
    assert done.exit_code == 1, done.output
    assert "Race without a barrier between" in done.output
