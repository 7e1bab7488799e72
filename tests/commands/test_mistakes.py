"""Each mistake of a user gets one clear line, the documented exit code and no traceback."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import BF16, FP32, KERNEL, RESULTS, run

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.devices.choose import why_not_cuda

BINARY = str(Path(__file__).parents[1] / "kept" / "program")  # how a program begins; an interpreter may be too large
CALIBRATION = resources.profiles() / "nvidia_h200" / "throughputs.csv"
ERRORS: dict[str, tuple[list[str], int, str, dict[str, str]]] = {
    "unknown task": (["optimize", "spmv_crs"], 2, "spmv_csr", {}),
    "unknown command": (["reprodce"], 2, "Did you mean reproduce?", {}),
    "no task": (["optimize"], 2, "tasks", {}),
    "unknown option": (["optimize", "--frobnicate"], 2, "frobnicate", {}),
    "no rounds": (["optimize", "spmv_csr", "-R", "0"], 2, "-R", {}),
    "missing file": (["evaluate", "spmv_csr", "no_such.cu"], 2, "no_such.cu", {}),
    "binary file": (["evaluate", "spmv_csr", BINARY], 2, "binary", {}),
    "a folder as file": (["evaluate", "spmv_csr", "."], 2, "directory", {}),
    "missing card": (["tasks", "nowhere.yaml"], 2, "There is no card nowhere.yaml.", {}),
    "a temperature that is no number": (["optimize", "relu", "--temperature", "nan"], 2, "nan is not a number", {}),
    "a path as name": (["tasks", "../tasks/relu"], 2, "Unknown task '../tasks/relu'", {}),
    "no run to resume": (["optimize", "--resume", "nowhere"], 6, "nowhere", {}),
    "no compiler": (["baselines", "dot_product", "--device", "cpu"], 4, "g++-of-nobody", {"CXX": "g++-of-nobody"}),
    "no compiler for a kernel": (
        ["evaluate", "relu", str(KERNEL), "--device", "cpu"],
        4,
        "g++-of-nobody",
        {"CXX": "g++-of-nobody"},
    ),
    "a compiler that does not run": (
        ["evaluate", "relu", str(KERNEL), "--device", "cpu"],
        4,
        "does not run",
        {"CXX": "/bin/false"},
    ),
    "an endless file": (["evaluate", "spmv_csr", "/dev/zero"], 2, "larger than", {}),
    "a harness nowhere": (["harness", "sorting", "-o", "/nowhere/h.cu"], 2, "/nowhere/h.cu", {}),
    "a binary region": (["harness", "sorting", "--region", BINARY], 2, "binary", {}),
    "an unknown task among others": (["baselines", "sorting", "nowhere"], 2, "nowhere", {}),
    **{
        f"too many calls, {calls}": (["evaluate", "spmv_csr", str(KERNEL), "--calls", calls], 2, "<=10000", {})
        for calls in ("2000000000", "99999999999999999999999")
    },
    **{
        f"a kernel of the other precision, {command[0]}": (command, 2, f"Add --precision {kind}.", {})
        for kind, command in [
            ("bf16", ["evaluate", "spmv_csr", str(BF16)]),
            ("bf16", ["profile", "spmv_csr", str(BF16)]),
            ("bf16", ["sanitize", "spmv_csr", str(BF16)]),
            ("bf16", ["compare", str(BF16), str(BF16), "--task", "spmv_csr"]),
            ("bf16", ["harness", "spmv_csr", "--region", str(BF16)]),
            ("bf16", ["prompt", "spmv_csr", "--role", "planner", "--candidate", str(BF16)]),
            ("fp32", ["evaluate", "spmv_csr", str(FP32), "--precision", "bf16"]),
        ]
    },
    **{
        f"two that contradict, {' '.join(words)}": (
            [*command, *words],
            2,
            f"{words[0]} and {words[1]} contradict each other. Give one of them.",
            {},
        )
        for command, words in [
            (["profile", "spmv_csr"], ["--full", "--none"]),
            (["profile", "spmv_csr"], ["--filtered", "--none"]),
            (["profile", "spmv_csr"], ["--filtered", "--full"]),
            (["show", "nowhere"], ["--diff", "--no-diff"]),
        ]
    },
    **{
        f"calls of what is not timed, {words[0]}": ([*words, "--check-only", "--calls", "5"], 2, "nothing is timed", {})
        for words in (["evaluate", "spmv_csr", str(FP32)], ["vendor", "dot_product", "--device", "cpu"])
    },
    "out is a file": (["optimize", "dot_product", "--device", "cpu", "--out", sys.executable], 2, "--out", {}),
    "a suite's out is a file": (
        ["suite", "--tasks", "relu", "--device", "cpu", "--out", sys.executable],
        2,
        "--out",
        {},
    ),
    **{
        f"an unwritable place, {' '.join(words[:1] + words[-2:])}": (words, 2, words[-2], {})
        for words in [
            ["report", str(RESULTS / "spmv_csr_bf16"), "--html", "/proc/c/page.html"],
            ["report", str(RESULTS / "spmv_csr_bf16"), "--csv", "/proc/c/table.csv"],
            ["report", str(RESULTS / "spmv_csr_bf16"), "--figures", "/proc/c"],
            ["show", str(RESULTS / "spmv_csr_bf16"), "--html", "/proc/c/page.html"],
            ["audit", "relu", "--device", "cpu", "--out", "/proc/c/audit.jsonl"],
            ["audit", "relu", "--device", "cpu", "--save", "/proc/c/audit"],
            ["vendor", "dot_product", "--device", "cpu", "--check-only", "--save", "/proc/c/vendor.json"],
            ["harness", "relu", "-o", "/proc/c/harness.cu"],
            ["optimize", "relu", "--device", "cpu", "--record", "/proc/c/record"],
            ["suite", "--tasks", "relu", "--device", "cpu", "--record", "/proc/c/record"],
            ["calibrate", "--gpu", "NVIDIA H200", "--from", str(CALIBRATION), "--out", "/proc/c"],
        ]
    },
    "a full disk": (["report", str(RESULTS / "spmv_csr_bf16"), "--csv", "/dev/full"], 4, "No space left", {}),
}


@pytest.mark.slow(but=["unknown option"])
@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_gets_one_clear_line(name: str) -> None:
    """The line names the thing and the fix; the exit code is the documented one; there is no traceback."""
    arguments, code, said, environment = ERRORS[name]
    done = run(*arguments, **environment)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "correct" not in done.stdout, "something ran before the mistake was seen"
    if done.stderr.startswith("error:"):
        assert done.stderr.count("\n") <= 2


def test_names_that_are_nearly_right() -> None:
    for words, near in (
        (["tasks", "spmv_cs"], "spmv_csr"),
        (["optimize", "relu", "--strategy", "cudaforg"], "cudaforge"),
        (["audit", "--kind", "zeroes"], "zeros"),
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert near in done.stderr.partition("Did you mean")[2], done.stderr


@pytest.mark.skipif(why_not_cuda() is None, reason="this machine has a GPU")
def test_a_gpu_where_there_is_none() -> None:
    """Asking for a GPU that is not there fails at once and says what else to do."""
    done = run("evaluate", "spmv_csr", str(FP32), "--device", "cuda")
    assert done.returncode == 4
    assert "--device cpu" in done.stderr


@pytest.mark.parametrize("words", [("-R",), ("-D",), ("--examples",), ("--strategy", "contrastive", "--set")])
def test_no_number_is_taken_that_a_run_folder_cannot_hold(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A run that could not be read back is not started."""
    large = str(10**400)
    value = f"islands={large}" if words[-1] == "--set" else large
    line = ["optimize", "relu", *words, value, "--out", str(tmp_path / "runs"), "--device", "cpu"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2, done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tasks", "nowhere", "--json"], 2, "nowhere"),
        (["evaluate", "spmv_csr", "nowhere.cu", "--json"], 2, "nowhere.cu"),
        (["optimize", "--resume", "nowhere", "--json"], 6, "nowhere"),
        (["optimize", "--json", "--frobnicate"], 2, "--frobnicate"),
    ],
)
def test_programs_get_errors_as_json(arguments: list[str], code: int, said: str) -> None:
    """With --json stdout is one object whatever happens; people read the same on stderr."""
    done = CliRunner().invoke(main, arguments)
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == error["exit_code"] == code
    assert said in error["reason"]
    assert error["fix"]
    assert said in done.stderr
