"""An outside agent searches: a program of its own submits kernels, and the search judges and records them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from search_stand_ins import RealTask
from small_cards import small_card

import cudamaster
from cudamaster.agents.submitter import Submission
from cudamaster.cli import main
from cudamaster.core.errors import BudgetSpent, ModelError, RunFolderError
from cudamaster.core.values import Candidate, Precision, Role, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.outside.agent import OutsideAgent
from cudamaster.outside.client import About, Submitted
from cudamaster.outside.client import Referee as Client
from cudamaster.outside.desk import Desk
from cudamaster.outside.program import resolved
from cudamaster.outside.referee import Referee
from cudamaster.profiling.filter import no_profile
from cudamaster.runs import reading, replaying
from cudamaster.runs.budget import Budget
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings, read_record
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result, Round

ROOT = Path(__file__).parent.parent.parent
# What an agent of these tests begins with; `submit` is what the MCP server's tool calls too.
PRELUDE = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import cudamaster
from cudamaster.core.errors import CudaMasterError

def kernel(status, score, tag):
    return f"// {{status}} {{score}} {{tag}}\\nvoid dot_product_optimized(float* out) {{{{}}}}\\n"

def submit(code, **more):
    try:
        return cudamaster.evaluate("dot_product", code, **more)
    except CudaMasterError as error:
        print(type(error).__name__, error.reason, flush=True)
"""


def agent(path: Path, body: str, minutes: float = 1.0, grace_s: float = 10.0) -> OutsideAgent:
    """An agent whose program is `body`, for the run in `path`."""
    program = path.parent / "agent.py"
    program.write_text(PRELUDE + body)
    return OutsideAgent(shlex.join([sys.executable, str(program)]), path, minutes=minutes, grace_s=grace_s)


def settings(model: OutsideAgent, rounds: int) -> Settings:
    return Settings("agent", rounds, 0, "stand-in", {Role.AGENT: model.name}, options={"command": "-", "minutes": 1.0})


def search(path: Path, model: OutsideAgent, rounds: int = 5, bench: RealTask | None = None) -> Result:
    return optimize(path, bench or RealTask(), {Role.AGENT: model}, settings(model, rounds))


def told(result: Result) -> list[tuple[str, Status, float | None]]:
    """The rounds in short."""
    return [(done.outcome.plan.idea, done.outcome.status, done.outcome.score) for done in result.rounds]


class SeededTask(RealTask):
    """Its verdicts name the seed of their inputs, as real ones do."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The verdict with a seed."""
        return replace(super().evaluate(candidate, to_beat=to_beat), seed=77)


def is_gone(process: int) -> bool:
    """Whether a process has ended, if it is not a zombie that nobody waits for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


SESSION = """
Path("seen").write_text(Path("TASK.md").read_text() + Path("kernel.cu").read_text())
wrong = submit(kernel("wrong", "-", "first"))
print(wrong.status, wrong.detail, wrong.seed, *wrong.notes, flush=True)
right = submit(kernel("correct", 1.5, "second"), command="nvcc -O2 -c candidate.cu -o candidate.o")
print(right.status, right.score, *right.notes, flush=True)
again = submit(kernel("wrong", "-", "first"), precision="fp32", device="stand-in")
print(again.notes[-1], flush=True)
submit(kernel("correct", 9, "x"), precision="bf16")
submit(kernel("correct", 9, "x"), seed=1)
submit(kernel("correct", 9, "x"), device="cuda")
try:
    cudamaster.evaluate("relu", kernel("correct", 9, "x"))
except CudaMasterError as error:
    print(error, flush=True)
try:
    cudamaster.compare("dot_product", kernel("correct", 9, "x"), kernel("correct", 8, "y"))
except CudaMasterError as error:
    print(error, flush=True)
print(Path("tried.md").read_text(), Path("best.cu").read_text() == kernel("correct", 1.5, "second"), flush=True)
Path("kernel.cu").write_text(kernel("correct", 2.5, "left behind"))
"""


def test_a_session_is_recorded_shown_and_replayed(tmp_path: Path) -> None:
    """What is submitted is judged by the search, once; what it does not judge is refused; a replay starts nothing."""
    path, bench = tmp_path / "run", SeededTask()
    result = search(path, agent(path, SESSION), 5, bench)
    assert [(status, score) for _, status, score in told(result)] == [
        (Status.WRONG, None),
        (Status.CORRECT, 1.5),
        (Status.CORRECT, 2.5),
    ]
    assert told(result)[0][0] == "wrong - first", "the first comment names the idea"
    assert result.note == "The agent ended. It used 3 of 5 submissions."
    assert result.rounds[1].attempts[0].candidate == bench.evaluated[2]
    assert read_record(path).candidate(bench.evaluated[2]).command.startswith("nvcc -O2")  # type: ignore[union-attr]
    assert len(bench.evaluated) == 4, "the baseline, and each submission once"
    said = (path / "agent.log").read_text().splitlines()
    assert said[0].startswith("wrong DETAIL first None submission 1 of 5: not kept; the best so far has P = 1.000")
    assert said[1] == "correct 1.5 submission 2 of 5: a new best"
    assert said[2] == "judged before: this cost no submission"
    assert said[3] == "UsageError This search is about dot_product in fp32, not dot_product in bf16."
    assert said[4] == "UsageError Inside a search all kernels are judged in the same way."
    assert said[5] == "UsageError This search judges on the stand-in device, not on cuda."
    assert said[6].startswith("This search is about dot_product in fp32, not relu in fp32.")
    assert said[7].startswith("A comparison is not offered inside a search.")
    assert said[8].startswith("1. FAILED, wrong: wrong - first")
    assert said[-1].endswith("True")
    seen = (path / "agent" / "seen").read_text()
    for part in ("cudamaster evaluate dot_product kernel.cu", "5 of 5 submissions", "Stand-in device"):
        assert part in seen
    assert seen.endswith(bench.baseline.code)

    summary = reading.read(path)
    assert [done.title for done in summary.rounds] == [idea for idea, _, _ in told(result)] + [
        "(no further idea from the agent)"
    ]
    assert (summary.usage.dollars, summary.usage.calls) == (None, 4), "what it spent is unknown, and not 0"

    record, again = read_record(path), tmp_path / "again"
    models = replaying.models(record, same_requests=True)
    replayed = optimize(again, RealTask(), models, record.manifest.settings)
    assert told(replayed) == told(result)
    assert not (again / "agent").exists()
    assert resume(path, RealTask(), {Role.AGENT: agent(path, "raise SystemExit(9)")}) == result, "it is finished"


def test_no_more_than_r_and_nothing_lives_on(tmp_path: Path) -> None:
    """After the last submission the agent is told so, and ended with all that it started, in whatever session."""
    path = tmp_path / "run"
    body = """
import signal, subprocess
submit(kernel("correct", 1.5, "a"))
submit(kernel("correct", 1.2, "b"))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stays = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-S", "-c", stays], stdout=subprocess.PIPE)
Path("pids").write_text(f"{os.getpid()} {int(child.stdout.readline())}")
submit(kernel("correct", 7, "c"))
time.sleep(60)
"""
    began = time.monotonic()
    result = search(path, agent(path, body, grace_s=2.0), 2)
    assert time.monotonic() - began < 20
    assert [score for _, _, score in told(result)] == [1.5, 1.2]
    assert result.note is None
    assert "BudgetSpent All 2 submissions of this search are judged." in (path / "agent.log").read_text()
    assert all(is_gone(int(pid)) for pid in (path / "agent" / "pids").read_text().split())
    assert read_record(path).finished


KILLED = """
import sys
sys.path[:0] = {paths}
from pathlib import Path
import test_outside_agent as tests
path = Path({path!r})
body = '''
submit(kernel("correct", 1.5, "a"))
submit(kernel("wrong", "-", "b"))
Path("pid").write_text(str(os.getpid()))
time.sleep(60)
'''
tests.search(path, tests.agent(path, body), 4)
"""


def test_a_killed_search_ends_its_agent_and_goes_on_with_all_that_it_tried(tmp_path: Path) -> None:
    """SIGKILL in the middle: what was submitted is there, and the program is started again with the record of it."""
    path = tmp_path / "run"
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "search")]
    script = KILLED.format(paths=paths, path=str(path))
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (path / "agent" / "pid").exists() and victim.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    left = int((path / "agent" / "pid").read_text())
    while not is_gone(left) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_gone(left)
    assert [done.status for done in reading.read(path).rounds] == [Status.CORRECT, Status.WRONG, None]

    bench = RealTask()
    body = """
print(submit(kernel("correct", 1.5, "a")).notes[-1], flush=True)
print(Path("tried.md").read_text(), Path("tried/2.cu").read_text() == kernel("wrong", "-", "b"), flush=True)
submit(kernel("correct", 2, "c"))
"""
    result = resume(path, bench, {Role.AGENT: agent(path, body)})
    assert [score for _, _, score in told(result)] == [1.5, None, 2.0]
    assert len(bench.evaluated) == 1
    said = (path / "agent.log").read_text()
    assert said.startswith("judged before: this cost no submission\n1. NEW BEST, speedup 1.500: correct 1.5 a\n2. FAIL")
    assert said.strip().endswith("True")
    assert "2 of 4 submissions are left" in (path / "agent" / "TASK.md").read_text()


FORGED = """
import json
sys.path[:0] = {paths}
from cudamaster.core.values import Candidate, Precision
from cudamaster.runs.folder import write_record
from cudamaster.runs.record import decoded
from cudamaster.core.values import Verdict
from dataclasses import replace
run = Path("..")
baseline = next(run.glob("verdicts/*.json"))
command = next(run.glob("candidates/*.command")).read_text()
code = kernel("correct", 1.1, "modest")
mine = Candidate("dot_product", Precision.FP32, code, command)
forged = replace(decoded(Verdict, baseline), candidate=mine.id, score=99.0)
"""


@pytest.mark.parametrize(
    "act",
    [
        'write_record(run / "verdicts" / f"{mine.id}.json", forged); submit(code)',
        'submit(code); write_record(run / "verdicts" / f"{mine.id}.json", forged)',
        'submit(code); (run / "best.cu").write_text("// mine"); time.sleep(60)',
    ],
    ids=["before", "after", "best"],
)
def test_a_forged_verdict_is_found(tmp_path: Path, act: str) -> None:
    """With its hash and all: nothing that another program wrote during the run is taken for the run's."""
    path = tmp_path / "run"
    with pytest.raises(RunFolderError, match="by another program while the run was at work"):
        search(path, agent(path, FORGED.format(paths=[str(ROOT)]) + act, grace_s=0.5), 1)
    assert not (path / "summary.json").exists() or "best.cu" in act


def test_no_link_of_an_agent_is_followed(tmp_path: Path) -> None:
    """An agent that is confined to its folder must not write or read elsewhere by the hands of the search."""
    path, home = tmp_path / "run", tmp_path / "home"
    home.mkdir()
    profile, secret = home / "profile", home / "secret.cu"
    profile.write_text("mine")
    secret.write_text(secret_text := "int key;\n")
    body = f"""
Path("tried").mkdir()
Path("tried/.1.cu.{os.getpid()}.new").symlink_to({str(profile)!r})
Path(".best.cu.{os.getpid()}.new").symlink_to({str(profile)!r})
Path("best.cu").unlink()
Path("best.cu").symlink_to({str(profile)!r})
submit(kernel("correct", 1.5, "a"))
Path("tried").rename("elsewhere")
Path("tried").symlink_to({str(home)!r})
Path(".mcp.json").unlink(missing_ok=True)
Path(".mcp.json").symlink_to({str(profile)!r})
Path("bin/cudamaster").unlink()
Path("bin").rmdir()
Path("bin").symlink_to({str(home)!r})
submit(kernel("correct", 2, "b"))
Path("kernel.cu").unlink()
Path("kernel.cu").symlink_to({str(secret)!r})
"""
    first = search(path, agent(path, body), 3)
    assert [score for _, _, score in told(first)] == [1.5, 2.0]
    folder = path / "agent"
    assert (folder / "best.cu").read_text() == (path / "best.cu").read_text()
    assert (folder / "elsewhere" / "1.cu").read_text().startswith("// correct 1.5 a")
    assert not any(secret_text in kept.read_text() for kept in path.glob("candidates/*"))
    assert (profile.read_text(), sorted(home.iterdir())) == ("mine", [profile, secret])


def test_an_agent_that_fails_or_does_nothing_is_an_error_and_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(ModelError, match=r"ended with exit code 3: no key"):
        search(path, agent(path, 'print("no key."); sys.exit(3)'))
    with pytest.raises(ModelError, match="It submitted no kernel"):
        resume(path, RealTask(), {Role.AGENT: agent(path, "")})
    over = agent(path, 'Path("kernel.cu").write_text(kernel("correct", 3, "late")); time.sleep(60)', minutes=0.02)
    result = resume(path, RealTask(), {Role.AGENT: over})
    assert [score for _, _, score in told(result)] == [3.0]
    assert result.note == "The agent was ended after 0.02 minutes. It used 1 of 5 submissions."


def test_a_spent_budget_ends_it_at_once(tmp_path: Path) -> None:
    """While the agent works, which gets no time to end by itself."""
    path, budget = tmp_path / "run", Budget()

    class Enough(Observer):
        def round_ended(self, finished: Round) -> None:
            budget.stop("It is enough.")

    model = agent(path, 'submit(kernel("correct", 1.5, "a")); time.sleep(60)', grace_s=60)
    result = optimize(path, RealTask(), {Role.AGENT: model}, settings(model, 5), Enough(), budget)
    assert result.stopped
    assert [score for _, _, score in told(result)] == [1.5]
    assert not read_record(path).finished


def test_the_referee_answers_nobody_else(tmp_path: Path) -> None:
    """Without the token, with what is no kernel, and one who leaves before the search took the kernel."""
    desk = Desk()
    desk.baseline(
        Candidate("dot_product", Precision.FP32, "x", "c"),
        Verdict("x", "cpu", emulated=True, status=Status.CORRECT, detail=""),
        no_profile("x", "none"),
    )
    referee = Referee(About("dot_product", Precision.FP32, "cpu"), desk)
    referee.start()
    parts = urlsplit(referee.address)

    def asked(body: str | None, token: str | None = parts.username) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", parts.port or 0)
        connection.request("POST" if body is not None else "GET", "/", body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def interrupt() -> None:
        raise KeyboardInterrupt

    def sent(code: str) -> str:
        return json.dumps({"task": "dot_product", "precision": "fp32", "code": code, "command": ""})

    try:
        assert asked(None)[0] == 200
        assert asked(None, "guess")[0] == 401
        assert asked(sent("y"), "")[0] == 401
        for body in ("{", "[]", "{}", sent(" "), sent("\ud800"), sent("z" * 200_000)):
            assert asked(body)[0] == 409, body[:20]
        assert desk.next(0) is None
        with pytest.raises(KeyboardInterrupt):  # as a call that is cancelled
            Client(referee.address).evaluate(Submitted("dot_product", Precision.FP32, "withdrawn"), interrupt)
        until = time.monotonic() + 10
        while not desk._waiting[0][1].cancelled() and time.monotonic() < until:
            time.sleep(0.05)
        assert desk.next(0) is None
        waiting = desk.submit(Submission("y"))
        desk.close(BudgetSpent("over.", ""))
        for future in (waiting, desk.submit(Submission("z"))):
            with pytest.raises(BudgetSpent, match="over"):
                future.result(1)
        assert desk.submit(Submission("x")).result(1).correct, "what is known is still said"
    finally:
        referee.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "The strategy agent has no command. Give one with --agent-command"),
        (["--agent-command", "no-such-agent --fast"], "There is no program 'no-such-agent'."),
        (["--agent-command", "python '"], "cannot be read: No closing quotation. Close its quotes."),
        (["--agent-command", "true", "--model", "openai/o4-mini"], "An outside agent asks models of its own."),
        (["--agent-command", "true", "--max-dollars", "1"], "--max-dollars cannot be kept: what an outside agent"),
        (["--agent-command", "true", "--seed", "1"], "the agent could learn. Leave --seed out."),
        (["--agent-command", "true", "--coder-model", "x/y"], "asks no coder agent: it asks no model."),
        (["--agent-command", "true", "--strategy", "sample"], "--agent-command is for an outside agent"),
    ],
)
def test_what_makes_no_sense_is_said_first(words: list[str], said: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        main, ["optimize", "relu", "--device", "cpu", "--strategy", "agent", "--out", str(tmp_path / "runs"), *words]
    )
    assert ran.exit_code == 2
    assert said in ran.output
    assert not (tmp_path / "runs").exists()


def test_a_command_is_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that are files become absolute; nothing else is touched, and no shell sees it."""
    (tmp_path / "my agent.py").write_text("")
    monkeypatch.chdir(tmp_path)
    command = resolved("python3 'my agent.py' other.py '$HOME; ls'")
    assert shlex.split(command) == ["python3", str(tmp_path / "my agent.py"), "other.py", "$HOME; ls"]


def test_the_example_searches_on_the_cpu_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines that edit a file and call `cudamaster evaluate`: real builds, kernels worth a GPU, a record of it."""
    monkeypatch.setattr(CpuDevice, "has_debug_build", False)
    command = shlex.join([sys.executable, str(ROOT / "examples" / "agent" / "agent.py")])
    run = cudamaster.optimize(
        small_card("spmv_csr"), strategy="agent", rounds=2, options={"command": command}, device="cpu", out=tmp_path
    )
    ideas = [idea for idea, _, _ in told(run.result)]
    assert ideas == ["128 threads in a block", "64 threads in a block"]
    # Block sizes of this kernel hardly differ by the model. Whether one is taken depends on the inputs that are drawn;
    # where none is, both are offered to a GPU.
    offered = {each.round for each in run.result.contenders}
    assert run.result.improved or offered == {1, 2}
    assert any("threads = 64" in each.read_text() for each in (run.path / "candidates").glob("*.cu"))
    shown = CliRunner().invoke(main, ["show", str(run.path)])
    assert "64 threads in a block" in shown.output
    assert "All 2 submissions of this search are judged." in (run.path / "agent.log").read_text()
    assert (run.path / "agent" / "best.cu").read_text() == run.best.code
