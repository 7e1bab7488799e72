"""Holds the Debug agent's prompt to what went wrong, with the lines it was on, for real errors."""

from __future__ import annotations

import re

import pytest
from asked_prompts import asked
from plain_device import PlainCpuDevice
from recorded_runs import COMMAND, ROOT
from search_stand_ins import dot_product

from cudamaster.agents.named_lines import named_lines
from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, Precision, Role, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, LocalGpu, find_nvcc
from cudamaster.faults import compute_sanitizer
from cudamaster.faults.compute_sanitizer import Tool, parse
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
ABSENT = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
SUM = "total += (double)X[i] * Y[i];"


def debug(text: str, told: Verdict) -> str:
    """The last part of the Debug agent's user message."""
    candidate = Candidate("dot_product", Precision.FP32, text, COMMAND)
    return asked(Role.DEBUG, candidate, told)[1].split("## What happened")[1]


def compiled(text: str, command_line: str = COMMAND) -> Verdict:
    """The verdict of a real build with nvcc, for a GPU that need not be there."""
    builder = Builder(cards.load("dot_product"), Precision.FP32, CudaDevice(ABSENT))
    candidate = Candidate("dot_product", Precision.FP32, text, command_line)
    built = builder.build(candidate)
    assert built.status is not None
    return Verdict(candidate.id, "cuda", False, built.status, built.detail, built.log)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("totl += X[i];", 'identifier "totl" is undefined'),
        ("total += X[i]", 'expected a ";"'),
        ("total += twice(X[i]);", "no nothing here"),
    ],
)
def test_lines_of_nvcc_are_those_of_the_code_shown(wrong: str, said: str) -> None:
    """The line that an error names is the code's own; a template's error names where it was instantiated."""
    text = dot_product(wrong)
    if "twice" in wrong:
        helper = (
            f'template <class T> __device__ T twice(T x) {{ static_assert(sizeof(T) > 99, "{said}"); return x; }}\n'
        )
        text = text.replace("\n__global__", f"\n{helper}\n__global__", 1)
    told = compiled(text)
    assert told.status is Status.COMPILE_ERROR
    part = debug(text, told)
    assert said in part
    named = {int(number) for number in re.findall(r"candidate\.cu\((\d+)\): error|\bat line (\d+)", part)[0] if number}
    lines = text.splitlines()
    assert any(
        wrong in lines[number - 1] or "twice" in lines[number - 1] or "}" in lines[number - 1] for number in named
    )
    for number, line in re.findall(r"^ *(\d+) \| (.*)$", part, re.MULTILINE):
        assert lines[int(number) - 1] == line.rstrip()


@pytest.mark.slow
@needs_nvcc
def test_a_line_of_ptx_is_not_taken_for_one_of_the_code() -> None:
    told = compiled(dot_product('asm volatile("mov.nothing.b32 %0, 1;" :: "r"(i));'))
    assert told.status is Status.COMPILE_ERROR
    assert ".ptx, line " in told.log
    part = debug(dot_product("x"), told)
    assert "Lines of the code" not in part


def test_named_lines_are_quoted_once() -> None:
    """As nvcc, g++, AddressSanitizer and the guards name them; not those that the log quotes, nor what is no line."""
    text = "one\n  two  two\nthree\nfour\nfive"
    log = "candidate.cu(1): error: x\ncandidate.cu:3:5: error\nf() candidate.cu:4\nsource guard (line 5): y\nother.cu:2"
    assert named_lines(log, text) == ((1, "one"), (3, "three"), (4, "four"), (5, "five"))
    assert named_lines("candidate.cu(2): error\n   two two\n   ^", text) == ()
    assert named_lines("line 2\n    2 |   two  two", text) == ()
    assert named_lines("candidate.cu(6), line 0, xyz.ptx, line 1; error", text) == ()
    many = "\n".join(f"candidate.cu({n}): error" for n in range(100, 0, -1))
    assert len(named_lines(many, "\n".join("abcdefghij" * 10))) == 12


def judged(statement: str, device: CpuDevice) -> tuple[str, Verdict]:
    """A kernel for dot_product with that loop body, and what the CPU device says of it at small sizes."""
    text = dot_product(statement)
    bench = Workbench(cards.load("dot_product"), Precision.FP32, device, seed=5)
    candidate = Candidate("dot_product", Precision.FP32, text, CpuDevice.default_command)
    return text, bench.evaluate(candidate, check_only=True)


def test_debug_sees_the_mismatch_with_its_pattern() -> None:
    text, told = judged("if (i % 7 != 6) " + SUM, PlainCpuDevice())
    part = debug(text, told)
    assert "Status: wrong. out: 1 of 1 elements wrong, the only element" in part
    assert re.search(r"\d+ of \d+ cases failed\.\nThey are those where N >= 7", part)
    assert re.search(r"out\[0\] +-?[\d.]+ +-?[\d.]+", part)
    assert "allowed" in part
    assert part.count("case N=7: ") == 1


@pytest.mark.slow
def test_debug_sees_the_fault_with_its_line() -> None:
    text, told = judged(SUM.replace("X[i]", "X[i + 64]"), CpuDevice())
    part = debug(text, told)
    assert "heap-buffer-overflow" in part
    assert re.search(r"^ +\d+ \| +total \+= \(double\)X\[i \+ 64\]", part, re.MULTILINE)
    assert part.count(told.detail) == 1, "the log opens with the detail"


@pytest.mark.slow
def test_debug_sees_the_refusal_with_its_line() -> None:
    text, told = judged(SUM, PlainCpuDevice())
    assert told.correct
    text = text.replace('extern "C"', 'static int calls = 0;\nextern "C"').replace(
        "    cudaDevice", "    ++calls;\n    cudaDevice"
    )
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CpuDevice(), seed=5)
    told = bench.evaluate(Candidate("dot_product", Precision.FP32, text, CpuDevice.default_command), check_only=True)
    part = debug(text, told)
    assert part.count("calls is a mutable global of the host") == 1
    assert " | static int calls = 0;" in part


def test_debug_sees_the_sanitizers_report_with_lines_quoted_once() -> None:
    """A race recorded on an H200."""
    text = "\n".join(f"  statement_{line}();" for line in range(1, 14))
    recorded = (ROOT / "tests" / "sanitizers" / "race.txt").read_text().replace("faulty.cu", "candidate.cu")
    report = parse(recorded, Tool.RACECHECK)
    told = Verdict("c0ffee", "cuda", False, Status.FAULT, f"racecheck: {report.summary}", report.explain(text))
    part = debug(text, told)
    assert "Race without a barrier between: write here, read in line 8" in part
    assert part.count("statement_7();") == part.count("statement_8();") == 1


def test_debug_sees_a_timeout() -> None:
    detail = "stopped in case N=1023: a call took longer than its limit (60 s)"
    part = debug(dot_product(SUM), Verdict("c0ffee", "cpu", True, Status.TIMEOUT, detail, ""))
    assert f"Status: timeout. {detail}\n\nThere is no further log." in part


@pytest.mark.gpu
@pytest.mark.skipif(compute_sanitizer.find() is None, reason="compute-sanitizer is not installed")
def test_a_fault_on_a_gpu_comes_with_its_line() -> None:
    """A CUDA error names none; within a search memcheck is asked."""
    text = dot_product("if (i == 0) out[i - (1 << 28)] = 1.0f;")
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CudaDevice(), seed=5)
    candidate = Candidate("dot_product", Precision.FP32, text, bench.baseline.command)
    told = bench.evaluate(candidate, to_beat=1.0)
    assert told.status is Status.FAULT
    assert "Invalid __global__ write" in told.sanitizers["memcheck"]
    assert "out[i - (1 << 28)] = 1.0f;" in told.log
