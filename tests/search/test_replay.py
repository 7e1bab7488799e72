"""A run replays from its record without models, device or network, and ends the same, or an error names the reason.

The record is that of a run "on an H200": the workbench is a stand-in, task card, prompts and run folder are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from search_stand_ins import SPEED, ScriptedModel, code, command, fix, plan

from cudamaster.cli import main
from cudamaster.core.errors import BudgetSpent, RunFolderError, UsageError
from cudamaster.core.values import Candidate, CaseVerdict, Findings, Hardware, Precision, Role, Status, Timing, Verdict
from cudamaster.models.protocol import Message, Model, Reply, Request
from cudamaster.runs import backends, replaying
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Replay, Settings, read_manifest, read_record
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

CARD = cards.load("dot_product")
H200 = Hardware("NVIDIA H200", {"memory": "143771 MiB"}, emulated=False)
COMMAND = "nvcc -O3 -std=c++17 -arch=sm_90 -c candidate.cu -o candidate.o"


def text(verdict: str) -> str:
    """A region whose verdict the workbench below reads from its first line."""
    return f"// {verdict}\n{CARD.declaration(Precision.FP32)} {{}}\n"


SETTINGS = Settings("cudamaster", 2, 1, "cuda", dict.fromkeys(ROLES, "openai/o4-mini"), seed=7)
SCRIPT = [
    plan("A"), code(text("wrong -")), command(COMMAND), fix("f"), code(text("correct 2.0")), command(COMMAND),
    plan("B"), code(text("correct 3.0")), command(COMMAND),
]  # fmt: skip


class Bench:
    """Judges by the first line of the code, as a GPU would that makes each kernel `faster` times as fast."""

    def __init__(self, faster: float = 1.0) -> None:
        self.card = CARD
        self.precision = Precision.FP32
        self.hardware = H200
        self.baseline = Candidate(CARD.name, Precision.FP32, baseline_region(CARD, Precision.FP32), COMMAND)
        self.on_build: Callable[[str, str], None] | None = None
        self._faster = faster

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The verdict that stands in the code."""
        words = ["correct", "1.0"] if candidate == self.baseline else candidate.code.split("\n", 1)[0].split()[1:3]
        assert self.on_build is not None
        self.on_build(candidate.id, f"nvcc built {candidate.id}\n")
        status = Status(words[0])
        timing = Timing((2.0, 4.0), (1.0, 2.0))
        return Verdict(
            candidate=candidate.id, device="cuda", emulated=False, status=status, detail="DETAIL",
            log="LOG" if status is not Status.CORRECT else "",
            score=self._faster * float(words[1]) if status is Status.CORRECT else None,
            cases=(CaseVerdict("N=8", True, 8.0, status, timing=timing, speed=SPEED),),
        )  # fmt: skip

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """None, and why."""
        return Findings(candidate.id, f"no counters; speed {verdict.score}")


def models(script: list[tuple[Role, str]] = SCRIPT) -> dict[Role, Model]:
    return dict.fromkeys(Role, ScriptedModel(script, name="openai/o4-mini"))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: two rounds, one debug try."""
    path = tmp_path_factory.mktemp("record") / "dot_product_fp32"
    assert optimize(path, Bench(), models(), SETTINGS).score == 3.0
    return path


def files(run: Path) -> dict[str, bytes]:
    """What a run came to: all of it but when, from where, and in how many sessions."""
    left_out = {"run.json", "sessions.json", "lock"}
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name not in left_out
    }


def replayed(
    record: Path, path: Path, *, models_only: bool = False, real_time: bool = False
) -> tuple[Settings, dict[Role, Model]]:
    replay = Replay(str(record), models_only, real_time)
    settings = backends.replayed_settings(read_manifest(record).settings, replay, device="auto", seed=None)
    return settings, backends.models(settings, path)


ALONE = """
import os, socket, subprocess, sys

def refuse(*_, **__):
    raise AssertionError("a replay reached out")

socket.socket = subprocess.Popen = subprocess.run = os.posix_spawn = os.fork = refuse
from cudamaster.cli import main
try:
    main(sys.argv[1:])
finally:
    assert not {"litellm", "openai", "httpx"} & set(sys.modules)
"""


def test_a_run_replays_with_no_key_network_gpu_or_compiler(record: Path, tmp_path: Path) -> None:
    """In a process that can open no socket and start no program, with an empty environment; every file is the same."""
    asked = ["optimize", "--replay", str(record), "--out", str(tmp_path), "--json"]
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, *asked], capture_output=True, text=True, env={"PATH": "/nowhere"}, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["device"], told["result"]["score"]) == ("cuda", 3.0)
    assert told["result"]["usage"]["coder"]["dollars"] == 0.75
    run = Path(told["run"])
    assert len(files(run)) > 20
    assert files(run) == files(record)
    manifest, then = read_manifest(run), read_manifest(record)
    assert (manifest.hardware, manifest.card_hash, manifest.baseline) == (H200, then.card_hash, then.baseline)
    assert manifest.settings.replay is not None
    assert manifest.settings.replay.record == str(record), "a replay says that it is one"


def test_a_replay_can_be_replayed(record: Path, tmp_path: Path) -> None:
    first = cli("--replay", str(record), "--record", str(tmp_path / "a"))
    second = cli("--replay", str(tmp_path / "a"), "--record", str(tmp_path / "b"))
    assert (first.exit_code, second.exit_code) == (0, 0), second.output
    assert "Replayed from" in second.output
    assert files(tmp_path / "b" / "dot_product_fp32") == files(record)


def test_a_replay_is_shown_as_one(record: Path, tmp_path: Path) -> None:
    """In the terminal and on the page; the run that it replays is not."""
    assert cli("--replay", str(record), "--record", str(tmp_path)).exit_code == 0
    page = tmp_path / "page.html"
    run = str(tmp_path / "dot_product_fp32")
    said = f"replies and verdicts replayed from {record}"
    for arguments in ([run], [run, "--html", str(page)]):
        shown = CliRunner().invoke(main, ["show", *arguments], env={"COLUMNS": "400"}, catch_exceptions=False)
        assert shown.exit_code == 0
        text = shown.output if len(arguments) == 1 else page.read_text()
        assert said in " ".join(text.split())  # lines are wrapped, the sooner the longer a path is
    assert "replayed" not in CliRunner().invoke(main, ["show", str(record)], catch_exceptions=False).output


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["optimize", *arguments], catch_exceptions=False)


def changed(record: Path, tmp_path: Path, **fields: object) -> Path:
    """A copy of the record whose run.json has other fields and a hash of its own that fits."""
    from cudamaster.core.records import from_json
    from cudamaster.runs.folder import write_record
    from cudamaster.runs.record import Manifest

    path = tmp_path / "changed"
    subprocess.run(["cp", "-r", str(record), str(path)], check=True)
    content = json.loads((path / "run.json").read_text())
    del content["hash"]
    manifest = replace(from_json(Manifest, content), **fields)  # type: ignore[arg-type]
    write_record(path / "run.json", manifest)
    return path


def test_another_task_card_is_refused_by_name(record: Path, tmp_path: Path) -> None:
    ran = cli("--replay", str(changed(record, tmp_path, card_hash="0123")), "--out", str(tmp_path / "runs"))
    assert ran.exit_code == 6
    assert "made with another task card" in ran.output
    assert not (tmp_path / "runs").exists(), "nothing was begun"


def test_another_baseline_is_refused_by_name(record: Path, tmp_path: Path) -> None:
    other = Candidate(CARD.name, Precision.FP32, "// an older baseline", COMMAND)
    path = changed(record, tmp_path, baseline=other.id)
    (path / "candidates" / f"{other.id}.cu").write_text(other.code)
    (path / "candidates" / f"{other.id}.command").write_text(other.command)
    with pytest.raises(RunFolderError, match=f"another baseline kernel: {other.id}, here {Bench().baseline.id}"):
        replaying.workbench(read_record(path), CARD)


def test_another_prompt_is_refused_by_name(record: Path) -> None:
    """A reply goes to the request that it was given to, and to no other."""
    stored = read_record(record).exchange(1)
    assert stored is not None
    asked = replaying.models(read_record(record), same_requests=True)
    with pytest.raises(RunFolderError, match=r"Exchange 1 of the record .* line 1 of the user message was"):
        asked[Role.PLANNER].ask(replace(stored.request, messages=(stored.request.messages[0], Message("user", "x"))))


def test_a_candidate_that_was_not_judged_is_refused_by_name(record: Path) -> None:
    bench = replaying.workbench(read_record(record), CARD)
    other = Candidate(CARD.name, Precision.FP32, "// correct 9.0", COMMAND)
    with pytest.raises(RunFolderError, match=f"holds no verdict on the candidate {other.id}"):
        bench.evaluate(other)
    with pytest.raises(RunFolderError, match=f"holds no findings on the candidate {other.id}"):
        bench.findings(other, bench.evaluate(bench.baseline))


def test_a_search_that_asks_for_more_is_refused_by_name(record: Path, tmp_path: Path) -> None:
    """Three rounds where two were recorded."""
    settings, asked = replayed(record, tmp_path / "run")
    bench = replaying.workbench(read_record(record), CARD)
    with pytest.raises(RunFolderError, match="holds no further reply of the planner agent"):
        optimize(tmp_path / "run", bench, asked, replace(settings, rounds=3))


def test_a_search_that_ends_elsewhere_is_found(record: Path, tmp_path: Path) -> None:
    """One round where two were recorded: each step fits, the result does not."""
    settings, asked = replayed(record, tmp_path / "run")
    whole = read_record(record)
    result = optimize(tmp_path / "run", replaying.workbench(whole, CARD), asked, replace(settings, rounds=1))
    with pytest.raises(RunFolderError, match=r"with 3\.0, its replay to .* with 2\.0"):
        replaying.must_agree(whole, result)


class _Cut:
    """A model that is gone after some calls."""

    name = "openai/o4-mini"

    def __init__(self, inner: Model, calls: int) -> None:
        self._inner = inner
        self._left = calls

    def ask(self, request: Request) -> Reply:
        """Answer, or be interrupted."""
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return self._inner.ask(request)


@pytest.mark.parametrize("calls", range(len(SCRIPT)))
def test_a_replay_that_was_stopped_goes_on(record: Path, tmp_path: Path, calls: int) -> None:
    """Wherever it was stopped; no reply is handed out twice and none is left out."""
    path = tmp_path / "run"
    settings, asked = replayed(record, path)
    bench = replaying.workbench(read_record(record), CARD)
    count = Counter[Role]()
    cut = _Cut(_ByRole(asked, count), calls)
    with pytest.raises(KeyboardInterrupt):
        optimize(path, bench, dict.fromkeys(ROLES, cut), settings)
    assert sum(count.values()) == calls
    assert cli("--resume", str(path)).exit_code == 0
    assert files(path) == files(record)


class _ByRole:
    name = "openai/o4-mini"

    def __init__(self, models: dict[Role, Model], count: Counter[Role]) -> None:
        self._models = models
        self._count = count

    def ask(self, request: Request) -> Reply:
        """Pass the request on to the model of its role."""
        self._count[request.role] += 1
        return self._models[request.role].ask(request)


@pytest.mark.parametrize("calls", [1, 5, 7])
def test_a_record_that_was_stopped_replays_to_where_it_stopped(tmp_path: Path, calls: int) -> None:
    """With the best so far of then, and said as what it is."""
    path = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        optimize(path, Bench(), dict.fromkeys(ROLES, _Cut(models()[Role.CODER], calls)), SETTINGS)
    settings, asked = replayed(path, tmp_path / "run")
    result = optimize(tmp_path / "run", replaying.workbench(read_record(path), CARD), asked, settings)
    assert result.score == json.loads((path / "best.json").read_text())["score"] == (1.0 if calls < 6 else 2.0)
    assert result.note is not None
    assert f"The record {path} ends here: interrupted." in result.note
    assert files(tmp_path / "run") == files(path)


def test_a_record_without_a_baseline_ends_at_once(record: Path, tmp_path: Path) -> None:
    path = changed(record, tmp_path)
    (path / "summary.json").unlink()
    (path / "verdicts" / f"{Bench().baseline.id}.json").unlink()
    with pytest.raises(BudgetSpent, match="ends here"):
        replaying.workbench(read_record(path), CARD).evaluate(Bench().baseline)


# ---- the replies alone


def test_replies_alone_are_handed_out_while_kernels_are_measured_anew(record: Path, tmp_path: Path) -> None:
    """Twice as fast a device: other figures in every prompt, the same replies to each role in their order."""
    path = tmp_path / "run"
    settings, asked = replayed(record, path, models_only=True)
    result = optimize(path, Bench(faster=2.0), asked, settings)
    assert result.score == 6.0
    then, now = read_record(record), read_record(path)
    for number in range(1, len(SCRIPT) + 1):
        old, new = then.exchange(number), now.exchange(number)
        assert old is not None
        assert new is not None
        assert old.reply == new.reply
    assert then.exchange(7).request != now.exchange(7).request  # type: ignore[union-attr]
    assert now.exchange(len(SCRIPT) + 1) is None


def test_replies_alone_end_where_the_measured_search_goes_on(record: Path, tmp_path: Path) -> None:
    """The kernel that was right fails here, so that the Debug agent is asked once more than was recorded."""

    class Failing(Bench):
        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            verdict = super().evaluate(candidate)
            fails = candidate.code.startswith("// correct 3.0")
            return replace(verdict, status=Status.WRONG, score=None, log="LOG") if fails else verdict

    settings, asked = replayed(record, tmp_path / "run", models_only=True)
    result = optimize(tmp_path / "run", Failing(), asked, settings)
    assert result.stopped
    assert result.score == 2.0
    assert "holds no further reply of the debug agent" in str(result.note)


def test_a_stopped_replay_of_replies_goes_on_behind_those_it_had(record: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings, asked = replayed(record, path, models_only=True)
    with pytest.raises(KeyboardInterrupt):
        optimize(path, Bench(2.0), dict.fromkeys(ROLES, _Cut(_ByRole(asked, Counter()), 5)), settings)
    assert resume(path, Bench(2.0), backends.models(settings, path)).score == 6.0


def test_replies_can_take_as_long_as_they_took(record: Path) -> None:
    """Each call of the scripted model is recorded with 0.1 s."""
    stored = read_record(record).exchange(1)
    assert stored is not None
    slept: list[float] = []
    for real_time in (True, False):
        asked = replaying.models(read_record(record), same_requests=True, real_time=real_time, sleep=slept.append)
        asked[Role.PLANNER].ask(stored.request)
    assert slept == [0.1]


# ---- which record is meant


def test_a_record_is_found_by_its_folder_or_by_its_task(record: Path) -> None:
    assert replaying.find(record) == record
    assert replaying.find(record.parent) == record
    assert replaying.find(record.parent, "dot_product", Precision.FP32) == record
    with pytest.raises(UsageError, match=r"no record dot_product_bf16 in .*Name one of dot_product_fp32"):
        replaying.find(record.parent, "dot_product", Precision.BF16)
    with pytest.raises(UsageError, match=r"Give a run folder"):
        replaying.find(record / "verdicts")


def test_a_record_has_its_place_by_task(record: Path, tmp_path: Path) -> None:
    """--record DIR is the place that --replay DIR looks in, and keeps what is there."""
    assert cli("dot_product", "--replay", str(record.parent), "--record", str(tmp_path)).exit_code == 0
    assert replaying.find(tmp_path, "dot_product") == tmp_path / "dot_product_fp32"
    again = cli("dot_product", "--replay", str(record.parent), "--record", str(tmp_path))
    assert again.exit_code == 6
    assert "exists already" in again.output
    assert "Everything so far is kept" not in again.output, "nothing was done"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay", "a", "--replay-models", "b"], "leave --replay-models out"),
        (["dot_product", "--real-time"], "--real-time needs a record"),
        (["--replay", "a", "--resume", "b"], "resumed or replayed, not both"),
        (["--replay", "/nowhere"], "not the record of one run"),
        (["--replay", "a", "-R", "5"], "leave --rounds out"),
        (["--replay-models", "a", "--judge-model", "x/y"], "leave --judge-model out"),
        (["--replay", "a", "--device", "cpu"], "leave --device out"),
        (["--replay-models", "/nowhere", "--device", "cpu"], "not the record of one run"),
        (["--resume", "a", "--strategy", "sample"], "leave --strategy out; -R and -D may be raised"),
        (["--resume", "a", "--coder-model", "x/y"], "leave --coder-model out"),
        (["--resume", "a", "--record", "b"], "leave --record out"),
        (["--resume", "a", "--precision", "bf16"], "leave --precision out"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(arguments: list[str], said: str) -> None:
    ran = cli(*arguments)
    assert ran.exit_code == 2
    assert said in ran.output
