"""Holds each role's prompt to what it needs, on recorded verdicts and profiles and on real errors; and `prompt`."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_runs import COMMAND, PROFILES, ROOT, baseline, best, findings, hardware, verdict
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, command, dot_product, fix, kernel, plan

from cudamaster import cards, prompting, sanitizers
from cudamaster.agents.brief import Brief
from cudamaster.agents.named_lines import named_lines
from cudamaster.building import Builder
from cudamaster.cli import main
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, Gpu, find_nvcc
from cudamaster.evaluation import Workbench
from cudamaster.harness import baseline_region
from cudamaster.optimization import optimize
from cudamaster.profiling.thresholds import load
from cudamaster.prompts import render
from cudamaster.runrecord import Settings
from cudamaster.sanitizers import Tool, parse
from cudamaster.values import Bottleneck, Candidate, Findings, Precision, Role, Status, Verdict

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
ABSENT = Gpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
SUM = "total += (double)X[i] * Y[i];"
PLAYBOOK = ROOT / "cudamaster" / "playbook" / "dot_product" / "fp32"


def brief_of(task: str, precision: str = "fp32") -> Brief:
    card, which = cards.load(task), Precision(precision)
    return Brief(
        task=task,
        precision=which,
        title=card.title,
        description=card.describe(which),
        wrapper=card.wrapper(which, optimized=True),
        declaration=card.declaration(which),
        default_command=COMMAND,
        hardware=hardware(),
    )


def asked(role: Role, candidate: Candidate, told: Verdict, found: Findings | None = None) -> tuple[str, str]:
    """The system and the user message."""
    brief = brief_of(candidate.task, candidate.precision.value)
    none = Findings(candidate.id, "there is none.")
    request = prompting.of_kernel(role, brief, candidate, candidate, told, found or none)
    system, user = request.messages
    return system.content, user.content


def planner(task: str = "sorting", found: Findings | None = None, **changes: Any) -> str:
    """The Planner's user message about the recorded best kernel."""
    return asked(Role.PLANNER, best(task, "fp32"), replace(verdict(task, "fp32"), **changes), found)[1]


def rows(prompt: str) -> list[list[str]]:
    """Cells of the table of cases."""
    lines = [line for line in prompt.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# ---- the Planner


def test_each_case_is_a_line_with_its_time_and_its_time_over_the_floor() -> None:
    """Medians of the recorded calls; weights are parts of the score; cases that were only checked are not told."""
    head, *cases = rows(planner())
    assert head == ["case", "weight", "baseline", "this kernel", "speedup", "x floor"]
    assert [case[0] for case in cases] == ["N=256", "N=1024", "N=4096", "N=16384", "N=65536"]
    recorded = verdict("sorting", "fp32").cases[-1]
    assert recorded.timing is not None
    assert recorded.floor_us is not None
    middle = sorted(recorded.timing.candidate_us)[24:26]
    label, weight, baseline_us, time_us, speedup, over = cases[-1]
    assert (label, weight) == ("N=65536", "78.3 %")
    assert float(time_us) == pytest.approx(sum(middle) / 2, rel=2e-3)
    assert float(baseline_us) / float(time_us) == pytest.approx(float(speedup), rel=0.05)
    assert float(over) == pytest.approx(sum(middle) / 2 / recorded.floor_us, abs=0.05)
    assert sum(float(case[1].removesuffix(" %")) for case in cases) == pytest.approx(100, abs=0.5)


def test_what_was_not_measured_has_no_column() -> None:
    """Floors and launches are those of a GPU; times on the device are there where they were taken."""
    cases = verdict("sorting", "fp32").cases
    bare = planner(cases=tuple(replace(case, floor_us=None) for case in cases), emulated=True)
    assert rows(bare)[0] == ["case", "weight", "baseline", "this kernel", "speedup"]
    assert "floor" not in bare
    assert "empty kernel" not in bare
    last = cases[-1]
    assert last.timing is not None
    timed = replace(last.timing, candidate_device_us=(19.0, 21.0, 20.0))
    with_one = rows(planner(cases=(*cases[:-1], replace(last, timing=timed))))
    assert with_one[0][4] == "on the device"
    assert [row[4] for row in with_one[-2:]] == ["-", "20.0"]


def test_a_case_that_did_not_run_is_named_with_its_reason() -> None:
    cases = verdict("sorting", "fp32").cases
    gone = replace(cases[-1], status=None, timing=None, speed=None, skipped="it needs more memory")
    text = planner(cases=(*cases[:-1], gone), complete=False)
    assert "\n- N=65536: not run (it needs more memory)\n" in text
    assert rows(text)[-1][0] == "N=16384"
    assert "cases were left out" in text


def test_metrics_come_with_units_and_meanings_and_the_class_with_its_reason() -> None:
    """The metrics of the class and no others."""
    text = planner(found=findings("one_kernel"))
    found = findings("one_kernel")
    assert found.bottleneck is Bottleneck.LATENCY
    assert "Neither the SMs nor the memory are above their limits" in text
    assert "(compute 30 %, DRAM 30 %, memory 30 % (paper))" in text
    for name, value in found.metrics.items():
        metric = load().metrics[name]
        assert f"\n- {name}: {value:.4g} {metric.unit} ({metric.meaning})\n" in text
    assert text.count("\n- ") == text.split("## Its result")[0].count("\n- ") + len(found.metrics)


@pytest.mark.parametrize("kind", Bottleneck)
def test_every_class_has_words(kind: Bottleneck) -> None:
    told = Findings("c0ffee", "a profile", kind, "a_kernel_optimized", 1.0, {"A": 1.0}, {}, "limits")
    assert re.search(r"above .*\(limits\)\.\n", render("_profile.md.j2", findings=told))


def test_without_the_filter_every_metric_of_every_kernel_is_told_at_every_case() -> None:
    """All of table 6 that this ncu gave, with units."""
    text = planner(found=findings("all_sections", full=True, cases=("N=65536", "N=256")))
    for case in ("N=65536", "N=256"):
        for name in ("merge_runs_kernel_optimized", "sort_tiles_kernel_optimized"):
            part = text.split(f"Case {case}, kernel `{name}`: ")[1].split("\n\n")[1]
            assert len(part.splitlines()) == 22  # of 24, two of which this version does not have
            assert "- Warp Cycles Per Issued Instruction: " in part
            assert all(re.fullmatch(r"- [\w/() ]+: \S+ (%|warp|cycle|inst/cycle)", line) for line in part.splitlines())


def test_the_planner_is_told_of_the_device_what_a_kernel_depends_on() -> None:
    """Figures as the device gave them, without those of its driver and its power supply."""
    system, _ = asked(Role.PLANNER, best("sorting", "fp32"), verdict("sorting", "fp32"))
    assert "NVIDIA H200" in system
    assert "- memory clock: 3201 MHz" in system
    assert "580.159.04" not in system
    assert "power" not in system


def test_no_prompt_of_another_role_holds_times_or_profiles() -> None:
    """Coder and Compiler carry out a plan: they get task, code and plan."""
    for role in (Role.CODER, Role.COMPILER):
        _, user = asked(role, best("sorting", "fp32"), verdict("sorting", "fp32"), findings("one_kernel"))
        assert rows(user) == []
        assert "L2 Hit Rate" not in user
        assert "the Planner's" in user


# ---- Debug


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


def judged(statement: str) -> tuple[str, Verdict]:
    """A kernel for dot_product with that loop body, and what the CPU device says of it at small sizes."""
    text = dot_product(statement)
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CpuDevice(), seed=5)
    candidate = Candidate("dot_product", Precision.FP32, text, CpuDevice.default_command)
    return text, bench.evaluate(candidate, check_only=True)


def test_debug_sees_the_mismatch_with_its_pattern() -> None:
    text, told = judged("if (i % 7 != 6) " + SUM)
    part = debug(text, told)
    assert "Status: wrong. out: 1 of 1 elements wrong, the only element" in part
    assert re.search(r"\d+ of \d+ cases failed\.\nThey are those where N >= 7", part)
    assert re.search(r"out\[0\] +-?[\d.]+ +-?[\d.]+", part)
    assert "allowed" in part
    assert part.count("case N=7: ") == 1


def test_debug_sees_the_fault_with_its_line() -> None:
    text, told = judged(SUM.replace("X[i]", "X[i + 64]"))
    part = debug(text, told)
    assert "heap-buffer-overflow" in part
    assert re.search(r"^ +\d+ \| +total \+= \(double\)X\[i \+ 64\]", part, re.MULTILINE)
    assert part.count(told.detail) == 1, "the log opens with the detail"


def test_debug_sees_the_refusal_with_its_line() -> None:
    text, told = judged(SUM)
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
@pytest.mark.skipif(sanitizers.find() is None, reason="compute-sanitizer is not installed")
def test_a_fault_on_a_gpu_comes_with_its_line() -> None:
    """A CUDA error names none; within a search memcheck is asked."""
    text = dot_product("if (i == 0) out[i - (1 << 28)] = 1.0f;")
    bench = Workbench(cards.load("dot_product"), Precision.FP32, CudaDevice(), seed=5)
    candidate = Candidate("dot_product", Precision.FP32, text, bench.baseline.command)
    told = bench.evaluate(candidate, to_beat=1.0)
    assert told.status is Status.FAULT
    assert "Invalid __global__ write" in told.sanitizers["memcheck"]
    assert "out[i - (1 << 28)] = 1.0f;" in told.log


# ---- the size of the Planner's prompt


@pytest.fixture(scope="module")
def prompt_size() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prompt_size", ROOT / "benchmarks" / "prompt_size.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prompt_size"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_filter_makes_the_prompt_smaller(prompt_size: ModuleType) -> None:
    """The benchmark on a recorded profile: the part by far more than 30 %, and with every case the whole prompt too."""
    text = (PROFILES / "all_sections.txt").read_text()
    cases = (None, *(case.label for case in cards.load("sorting").cases if case.sweep))
    found = prompt_size.measured("sorting", Precision.FP32, [(case, text) for case in cases], len)
    filtered, one, every = found.filtered, found.one_case, found.all_cases
    assert found.recorded == found.timed == len(cases) - 1
    assert filtered.part.tokens < 0.7 * one.part.tokens
    assert filtered.whole.tokens < one.whole.tokens
    assert filtered.whole.tokens < 0.7 * every.whole.tokens
    assert every.part.tokens > 4 * one.part.tokens
    assert one.whole.tokens - filtered.whole.tokens == one.part.tokens - filtered.part.tokens


@pytest.mark.parametrize(
    ("task", "recorded", "timed"),
    [("spmv_csr", 6, 6), ("softmax", 16, 16), ("merge_attn_states", 12, 12), ("conv_1d", 10, 20)],
)
def test_of_profiles_of_an_h200_too(prompt_size: ModuleType, task: str, recorded: int, timed: int) -> None:
    """Of a task with cases that were not recorded the saving is called a least one, and none against one case."""
    files = sorted((ROOT / "results" / "h200" / "full_profiles").glob(f"{task}-fp32-*.txt"))
    profiles = [(prompt_size.NAME.fullmatch(file.name)["case"], file.read_text()) for file in files]
    found = prompt_size.measured(task, Precision.FP32, profiles, len)
    assert (found.recorded, found.timed) == (recorded, timed)
    assert found.filtered.whole.tokens < 0.7 * found.all_cases.whole.tokens
    lines = prompt_size.table_rows(task, found)
    whole = recorded == timed
    assert [line[1] for line in lines] == (["one case", f"all {timed} cases"] if whole else ["10 of 20 cases"])
    assert lines[-1][-1].startswith("at least ") == (not whole)
    with pytest.raises(SystemExit, match="N=3 is none of its timed cases"):
        prompt_size.measured(task, Precision.FP32, [("N=3", profiles[0][1])], len)


# ---- the command


def shown(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["prompt", *map(str, arguments)])


@pytest.mark.parametrize("role", ["planner", "coder", "compiler"])
def test_the_baseline_before_anything_was_measured(role: str) -> None:
    """The whole text of the baseline, as the search starts from it, and an estimate of the tokens."""
    result = shown("spmv_csr", "--role", role, "--precision", "bf16", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert baseline("spmv_csr", "bf16").code.rstrip() in result.stdout
    assert ("It has not been measured." in result.stdout) == (role == "planner")
    whole = json.loads(shown("spmv_csr", "--role", role, "--precision", "bf16", "--device", "cpu", "--json").stdout)
    assert [message["role"] for message in whole["messages"]] == ["system", "user"]
    assert whole["characters"] == sum(len(message["content"]) for message in whole["messages"])
    assert whole["tokens_estimate"] == pytest.approx(whole["characters"] / 4, abs=1)
    assert f"{whole['characters']:,} characters" in result.stdout


def test_a_kernel_that_fails_is_shown_to_debug_and_to_nobody_else(tmp_path: Path) -> None:
    """The Coder is asked to mend it, the Planner is never asked about it."""
    file = tmp_path / "k.cu"
    file.write_text(dot_product("totl += X[i];"))
    told = shown("dot_product", "--role", "debug", "--candidate", file, "--device", "cpu")
    assert "Status: compile_error" in told.stdout
    assert "totl" in told.stdout
    assert "## Fix to make" in shown("dot_product", "--role", "coder", "--candidate", file, "--device", "cpu").stdout
    refused = shown("dot_product", "--role", "planner", "--candidate", file, "--device", "cpu")
    assert refused.exit_code == 2
    assert "Take --role debug" in refused.stderr


def test_judge_and_reviewer_see_the_kernel_beside_the_plain_one(tmp_path: Path) -> None:
    """The Judge in both of its modes; the Reviewer a kernel that is right, with its score."""
    broken, right = tmp_path / "broken.cu", tmp_path / "right.cu"
    broken.write_text(dot_product("totl += X[i];"))
    right.write_text(dot_product("total += X[i] * Y[i]; // mine"))
    plain = baseline_region(cards.load("dot_product"), Precision.FP32).strip()
    told = shown("dot_product", "--role", "judge", "--device", "cpu").stdout
    assert '"modification plan"' in told
    assert "There is no hardware profile" in told
    told = shown("dot_product", "--role", "judge", "--candidate", broken, "--device", "cpu").stdout
    assert '"minimal_fix_hint"' in told
    assert "Status: compile_error" in told
    assert plain in told
    told = shown("dot_product", "--role", "reviewer", "--candidate", right, "--device", "cpu").stdout
    assert "// mine" in told
    assert plain in told
    assert "Weighted speedup over the plain kernel" in told


def test_the_coder_is_that_of_the_strategy(tmp_path: Path) -> None:
    """Of the baseline, and of a kernel at hand that is right or fails."""

    def told(strategy: str, *more: str | Path) -> str:
        result = shown("dot_product", "--role", "coder", "--device", "cpu", "--strategy", strategy, *more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    broken, right = tmp_path / "broken.cu", tmp_path / "right.cu"
    broken.write_text(dot_product("totl += X[i];"))
    right.write_text(dot_product("total += X[i] * Y[i]; // mine"))
    assert "<the Planner's scheme>" in told("cudamaster")
    assert "There is one try" in told("sample")
    assert "## Latest kernel (failing)" in told("cudaforge", "--candidate", broken)
    assert "<the smallest fix>" in told("cudaforge", "--candidate", broken)
    assert "The one kernel to learn from" in told("contrastive")
    both = told("contrastive", "--candidate", right)
    assert both.count("### Kernel") == 2
    assert "// mine" in both


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--role", "planner"), "No task was given."),
        (("spmv_csr", "--role", "debug"), "failing kernels alone. Give one with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--strategy", "sample"), "The strategy sample asks no planner agent."),
        (("--role", "planner", "--run", "x", "--strategy", "sample"), "leave out TASK, --strategy"),
        (("spmv_csr", "--role", "reviewer"), "have a score alone. Give one with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--round", "1"), "Give --run RUN with --round."),
        (("spmv_csr", "--role", "planner", "--command", "nvcc"), "Give the kernel with --candidate FILE."),
        (("spmv_csr", "--role", "planner", "--run", "x"), "leave out TASK"),
        (("--role", "planner", "--run", "x"), "There is no run in x."),
        (("nothing", "--role", "planner"), "Unknown task 'nothing'."),
    ],
)
def test_what_makes_no_prompt_is_refused_with_the_fix(arguments: tuple[str, ...], said: str) -> None:
    result = shown(*arguments, "--device", "cpu")
    assert result.exit_code != 0
    assert said in result.stderr


class RealTask(ScriptedWorkbench):
    """The scripted workbench on a real card, whose baseline it takes for correct."""

    def __init__(self) -> None:
        super().__init__()
        self.card = cards.load("dot_product")  # type: ignore[assignment]
        text = baseline_region(cards.load("dot_product"), Precision.FP32)
        self.baseline = Candidate("dot_product", Precision.FP32, text, CpuDevice.default_command)

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """By the first line, but for the baseline."""
        if candidate.id != self.baseline.id:
            return super().evaluate(candidate)
        told = super().evaluate(replace(candidate, code=kernel(score=1.01)))
        return replace(told, candidate=candidate.id)


SCRIPT = [
    plan("First"), code(kernel("wrong", tag="a")), command(),
    fix("one"), code(kernel("fault", tag="b")), command(),
    fix("two"), code(kernel(score=2.0, tag="c")), command(),
    plan("Second"), code(kernel(score=3.0, tag="d")), command(),
]  # fmt: skip


def run_of(path: Path, script: list[tuple[Role, str]], examples: int = 0) -> Path:
    """A run over `script`; where that ends early, the run is left as a kill would leave it."""
    model = ScriptedModel([(role, text.replace("double_it", "dot_product")) for role, text in script])
    roles = (Role.PLANNER, Role.CODER, Role.COMPILER, Role.DEBUG)
    settings = Settings("cudamaster", 2, 3, "cpu", dict.fromkeys(roles, "scripted"), examples=examples)
    try:
        optimize(path, RealTask(), model.for_all(), settings)
    except StopIteration:
        assert len(script) < len(SCRIPT)
    return path


def test_a_run_is_shown_as_it_stood(tmp_path: Path) -> None:
    """The last request of the role in the round, in the very words that were sent, found again without a model."""
    run = run_of(tmp_path / "run", SCRIPT)
    debug_said = shown("--run", run, "--role", "debug").stdout
    assert "// fault - b" in debug_said
    assert "FIX one" in debug_said
    assert f"exchange 7 of {run}, round 1, as it was sent" in debug_said
    first, second = (shown("--run", run, "--role", "planner", *more).stdout for more in (("--round", "1"), ()))
    assert "None yet." in first
    assert "ACCEPTED, speedup 2.000: First" in second
    stored = json.loads((run / "exchanges" / "0010_planner.json").read_text())
    assert (
        json.loads(shown("--run", run, "--role", "planner", "--json").stdout)["messages"]
        == stored["request"]["messages"]
    )
    missing = shown("--run", run, "--role", "debug", "--round", "2")
    assert missing.exit_code == 2
    assert "does not ask the debug agent in round 2" in missing.stderr
    assert "It is asked in round 1" in missing.stderr


def test_worked_examples_of_a_run_are_shown_too(tmp_path: Path) -> None:
    """They stand before the Coder's task, as they were sent."""
    run = run_of(tmp_path / "run", SCRIPT, examples=1)
    text = shown("--run", run, "--role", "coder").stdout
    assert "round 2, as it was sent" in text
    stored = json.loads((run / "exchanges" / "0011_coder.json").read_text())["request"]["messages"][1]["content"]
    assert not stored.startswith("## Task")
    assert stored in text


def test_a_run_that_was_stopped_is_shown_up_to_the_question_it_stopped_at(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCRIPT[:6])
    text = shown("--run", run, "--role", "debug").stdout
    assert "// fault - b" in text
    assert "round 1, not asked yet" in text
    gone = shown("--run", run, "--role", "planner", "--round", "2")
    assert "does not ask the planner agent in round 2 (The record" in gone.stderr


def test_a_run_that_was_stopped_while_it_judged_is_shown_up_to_there(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCRIPT[:6])
    verdicts = sorted((run / "verdicts").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    verdicts[-1].unlink()
    told = shown("--run", run, "--role", "compiler")
    assert told.exit_code == 0, told.stderr
    assert "as it was sent" in told.stdout
    gone = shown("--run", run, "--role", "debug", "--round", "2")
    assert "does not ask the debug agent in round 2 (The record" in gone.stderr


def test_a_prompt_with_control_characters_drives_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(dot_product("total += X[i]; // \x1b[31m"))
    result = shown("dot_product", "--role", "debug", "--candidate", file, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "\x1b[31m" not in result.stdout
    assert "\\x1b[31m" in result.stdout
