"""`import cudamaster` as a library: what the commands say, nothing printed, runs that go on; its examples run."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import cudamaster
from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.records import to_json
from cudamaster.devices import parts
from cudamaster.library import progress
from cudamaster.models.playbook import PlaybookModel

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "library"
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


@pytest.fixture(autouse=True)
def no_command_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program of its own: a command that another test ran in this process has first builds reported."""
    monkeypatch.setattr(parts, "report", None)


def test_every_name_is_there_and_has_its_type() -> None:
    """What a type checker reads is what a program gets."""
    tree = ast.parse(Path(cudamaster.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: (node.module or "").removeprefix("cudamaster.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cudamaster.")
        for alias in node.names
    }
    assert typed == {name: module for module, names in cudamaster._MODULES.items() for name in names}
    assert {*typed, "__version__"} == set(cudamaster.__all__)
    for name, module in typed.items():
        assert getattr(cudamaster, name) is getattr(sys.modules[f"cudamaster.{module}"], name)
    assert cudamaster.load_task(ROOT / "examples" / "axpby" / "tasks" / "axpby.yaml").name == "axpby"
    with pytest.raises(AttributeError):
        _ = cudamaster.evaluated  # type: ignore[attr-defined]


@pytest.mark.slow
def test_it_says_what_the_command_says_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a thread other than the main one, with a device made once, a kernel as text and one out of a file."""
    file = tmp_path / "relu.cu"
    file.write_text(KERNEL)
    lines: list[str] = []
    device = cudamaster.choose_device("cpu")
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(
            cudamaster.evaluate, "relu", KERNEL, device=device, seed=7, progress=lines.append
        ).result()
    profiles = cudamaster.profile("relu", file, device=device, seed=7)
    assert capfd.readouterr() == ("", "")
    assert verdict.correct
    assert lines[0] == "relu (fp32): building and running on the cpu device"
    commands = CliRunner().invoke(main, ["evaluate", "relu", str(file), "--device", "cpu", "--seed", "7", "--json"])
    told, ours = json.loads(commands.stdout), to_json(verdict)
    for timed in ("seconds", "build"):
        del told[timed], ours[timed]
    assert untimed(told) == untimed(ours)
    assert profiles.verdict is not None
    assert [one.who for one in profiles.profiles] == ["baseline", "candidate"]
    found = profiles.of("candidate").findings
    assert found is not None
    assert found.bottleneck is not None


def untimed(verdict: dict[str, object]) -> dict[str, object]:
    """Without what a clock said: the CPU device's own times, and those of its judge."""
    cases = [{**case, "timing": None, "empty_us": None} for case in verdict["cases"]]  # type: ignore[attr-defined]
    return {**verdict, "cases": cases, "hardware": None}


def test_an_error_of_a_callers_progress_is_the_callers(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever thread it is called from: a thread of ours would only print it."""
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), progress.telling(tell, "relu", "building"):
        time.sleep(0.2)
    assert [line.split(",")[0] for line in lines] == ["relu: building", "relu"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_wrong_kernel_is_a_verdict() -> None:
    wrong = KERNEL.replace("i < N", "i < N - 1")
    verdict = cudamaster.evaluate("relu", wrong, device="cpu", check_only=True)
    assert verdict.status is cudamaster.Status.WRONG
    assert verdict.score is None
    case = next(case for case in verdict.cases if case.label == "N=1000")
    assert [(output.mismatches, output.first[0].element) for output in case.outputs] == [(1, 999)]
    compared = cudamaster.compare("relu", KERNEL, wrong, device="cpu")
    assert (compared.correct, compared.first.correct, compared.second.status) == (False, True, "wrong")
    assert not cudamaster.profile("relu", wrong, device="cpu").profiles


@pytest.mark.parametrize(
    ("call", "reason", "fix"),
    [
        (lambda: cudamaster.load_task("relux"), "Unknown task 'relux'", "relu"),
        (lambda: cudamaster.evaluate("relu", "my.cu"), "name of a file", "Path('my.cu')"),
        (lambda: cudamaster.evaluate("relu", Path("none.cu")), "cannot be read", "a .cu file"),
        (lambda: cudamaster.evaluate("relu", KERNEL, device="gpu"), "no device 'gpu'", "auto, cuda or cpu"),
        (lambda: cudamaster.evaluate("relu", KERNEL, precision="bf16"), "not one of bf16", "fp32"),
        (lambda: cudamaster.evaluate("relu", KERNEL, precision="fp16"), "not in fp16", "fp32"),
        (lambda: cudamaster.evaluate("relu", KERNEL, calls=0), "calls is 0", "1 to 10,000"),
        (lambda: cudamaster.compare("relu", KERNEL, KERNEL, calls=1), "calls is 1", "2 to 10,000"),
        (lambda: cudamaster.profile("relu", case="9", device="cpu"), "no timed case '9'", "heaviest"),
        (lambda: cudamaster.optimize(), "No task", "--resume"),
        (lambda: cudamaster.optimize("relu", rounds=0), "rounds is 0", "Give 1"),
        (lambda: cudamaster.optimize("relu", strategy="none"), "no strategy 'none'", "cudamaster"),
        (lambda: cudamaster.optimize("relu", models={"writer": "playbook"}), "no agent 'writer'", "planner"),
        (lambda: cudamaster.optimize("relu", max_minutes=0), "limit of 0", "above 0"),
        (lambda: cudamaster.optimize(resume="runs/x", model="playbook"), "resumes with the settings", "Leave model"),
        (lambda: cudamaster.optimize(replay="x", rounds=2), "goes by the settings of its record", "Leave rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(call: object, reason: str, fix: str) -> None:
    """Before anything is built or written."""
    with pytest.raises(cudamaster.UsageError) as raised:
        call()  # type: ignore[operator]
    assert reason in raised.value.reason
    assert fix in raised.value.fix


class Mine:
    """A model of a program's own."""

    name = "mine"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._playbook = PlaybookModel()

    def ask(self, request: cudamaster.Request) -> cudamaster.Reply:
        """What the playbook says."""
        self.asked.append(request.role)
        return self._playbook.ask(request)


class Steps(cudamaster.Observer):
    """Notes the names of events, and stops the search at one of them."""

    def __init__(self, stop_at: str = "") -> None:
        self.seen: list[str] = []

        def noting(name: str):  # type: ignore[no-untyped-def]
            def note(*_what: object, **_more: object) -> None:
                self.seen.append(name)
                if name == stop_at:
                    raise KeyboardInterrupt

            return note

        vars(self).update({name: noting(name) for name in vars(cudamaster.Observer) if not name.startswith("_")})


@pytest.mark.slow
def test_a_search_is_watched_stopped_resumed_and_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a card that its name does not lead to, with a model object."""
    fields = cudamaster.load_task(resources.bench() / "tasks" / "rms_norm.yaml").model_dump()
    card = cudamaster.TaskCard.model_validate({**fields, "summary": "Mine."})
    model, steps = Mine(), Steps(stop_at="written")
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        cudamaster.optimize(
            card, rounds=1, debug_tries=0, device="cpu", seed=3, model=model, out=tmp_path, observer=steps,
            progress=lines.append,
        )  # fmt: skip
    assert steps.seen == ["evaluating", "baseline", "round_started", "asking", "planned", "asking", "asking", "written"]
    told = [line for line in lines if not line.startswith("kernel ")]
    assert [line.split(" ")[0] for line in told] == ["baseline:", "round", "asking", "plan:", "asking", "asking"]
    (path,) = tmp_path.iterdir()
    before = {file.name: file.stat().st_mtime_ns for file in (path / "verdicts").iterdir()}
    with pytest.raises(cudamaster.UsageError, match="mine"):
        cudamaster.optimize(card, resume=path)
    with pytest.raises(cudamaster.RunFolderError, match="task card"):
        cudamaster.optimize("rms_norm", resume=path, model=model)
    asked, steps = len(model.asked), Steps()
    run = cudamaster.optimize(card, resume=path, model=model, observer=steps)
    assert capfd.readouterr() == ("", "")
    assert len(model.asked) == asked  # what was answered is not asked again
    assert steps.seen[-3:] == ["judged", "improved", "round_ended"]
    assert (run.path, run.best.code) == (path, (path / "best.cu").read_text())
    assert run.score > 1
    assert run.spent.calls == asked
    assert before.items() <= {file.name: file.stat().st_mtime_ns for file in (path / "verdicts").iterdir()}.items()
    shown = CliRunner().invoke(main, ["show", str(path), "--no-diff"])
    assert shown.exit_code == 0, shown.output
    assert f"{run.score:.2f}" in shown.output


_INTERRUPTED = """
import os, signal, time, cudamaster
from pathlib import Path

def interrupt(line):
    if "cases done" in line:
        os.kill(os.getpid(), signal.SIGINT)

KERNEL = '''%s'''
HANGS = KERNEL.replace("if (i < N)", "for (volatile int k = 0; N > 0; k = k + 1) {}")
try:
    cudamaster.evaluate("relu", HANGS, device="cpu", progress=interrupt)
except KeyboardInterrupt:
    print("interrupted")
until = time.monotonic() + 20
while left := "".join(task.read_text() for task in Path("/proc/self/task").glob("*/children")):
    assert time.monotonic() < until, left
    time.sleep(0.1)
print(cudamaster.evaluate("relu", KERNEL, device="cpu", check_only=True).status)
"""


def fresh(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, in that folder, without a GPU; it imports this checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_an_interruption_ends_what_was_started(tmp_path: Path) -> None:
    """As in a notebook: KeyboardInterrupt, no judge that keeps the device, and the next call works."""
    done = fresh("-c", _INTERRUPTED % KERNEL, folder=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\ncorrect\n", "", 0)


@pytest.mark.slow(but=["check_a_kernel.py"])
@pytest.mark.parametrize("name", ["check_a_kernel.py", "search_and_compare.py", "first_steps.ipynb"])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """In a folder of its own; the cells of a notebook one after the other."""
    example = EXAMPLES / name
    if example.suffix == ".ipynb":
        cells = [cell for cell in json.loads(example.read_text(encoding="utf-8"))["cells"] if cell["source"]]
        example = tmp_path / "cells.py"
        example.write_text("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    done = fresh(str(example), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said = {
        "check_a_kernel.py": ["correct: ", "P = 1.0", "wrong: ", "N=1: 1 of 1 elements wrong"],
        "search_and_compare.py": ["round 1 of 1", "new best", "Against the baseline: ", " modelled, faster"],
        "first_steps.ipynb": ["64  correct", "1024  correct", "baseline: ", "candidate: "],
    }[name]
    assert [words for words in said if words not in done.stdout] == []


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    shown = re.findall(r"^`(examples/library/[^`]+\.py)`:\n\n```python\n(.*?)```$", page, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in shown} == {f"examples/library/{file.name}" for file in EXAMPLES.glob("*.py")}
    for name, text in shown:
        assert text == (ROOT / name).read_text(encoding="utf-8"), name
    assert "first_steps.ipynb" in page
