# ruff: noqa: D102
"""A run that was killed anywhere continues, asks nothing twice, and ends the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_servers import ChatServer, messages_hash
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan

from cudamaster.core.values import Role
from cudamaster.models.protocol import Reply, Request, Usage
from cudamaster.runs import folder
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES

ROUNDS, TRIES = 4, 2
EXPECTED_REQUESTS = 30


def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
    """Replies that depend only on the request: every other round needs two debug tries, and one never works."""
    text = messages[-1]["content"]
    if role is Role.PLANNER:
        return 200, plan(f"Idea {text.count('ACCEPTED') + text.count('FAILED')}")[1]
    if role is Role.COMPILER:
        return 200, COMMAND
    if role is Role.DEBUG:
        failing = re.search(r"// \S+ \S+ (\S+)", text)
        assert failing is not None
        return 200, fix(f"{failing[1]}x")[1]
    idea = int(re.findall(r"Idea (\d+)", text)[-1])
    tried = re.search(r"FIX (\S+)", text)
    tag = tried[1] if tried else f"i{idea}"
    if idea == 1:
        return 200, code(kernel("fault", tag=tag))[1]
    if idea % 2 == 0 and tag.count("x") < 2:
        return 200, code(kernel("compile_error" if "x" in tag else "wrong", tag=tag))[1]
    return 200, code(kernel(score=1.5 + idea, tag=tag))[1]


class Runner:
    """Starts searches in children of one process, which has imported everything already."""

    def __init__(self) -> None:
        here = Path(__file__).parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent.parent)))}
        self._parent = subprocess.Popen(
            [sys.executable, here / "killed_run.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,  # or a line read ahead would hide from `ended`
        )

    def start(self, path: Path, url: str) -> int:
        """Process id of a search in `path`, fresh or resumed."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{path} {url} {ROUNDS} {TRIES}\n".encode())
        return int(self._line())

    def ended(self, timeout_s: float = 0.0) -> bool:
        """Whether the search is over, waiting for it that long."""
        return bool(select.select([self._parent.stdout], [], [], timeout_s)[0])

    def exit_code(self) -> int:
        """Exit code of the search, negative when a signal ended it."""
        assert self.ended(30), "the search hangs"
        return int(self._line())

    def _line(self) -> bytes:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline()

    def close(self) -> None:
        """End the process."""
        self._parent.kill()
        self._parent.communicate()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.close()


def entries(path: Path) -> int:
    """Number of files and folders under `path`, some of which come and go."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(path))


def on_disk(path: Path) -> set[str]:
    """Hashes of the messages of all stored exchanges."""
    stored = [json.loads(file.read_text()) for file in (path / "exchanges").glob("*.json")]
    return {messages_hash(exchange["request"]["messages"]) for exchange in stored}


class Killer:
    """Answers as `answer` does, says when a request comes that is stored already, and kills at given requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.victim: int | None = None
        self.kill_at: int | None = None
        self.seen = 0
        self.twice: list[Role] = []
        self._lock = threading.Lock()

    def __call__(self, role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        with self._lock:
            if messages_hash(messages) in on_disk(self.path):
                self.twice.append(role)
            self.seen += 1
            if self.seen == self.kill_at:
                while self.victim is None:  # the request may come before the process id
                    time.sleep(0.001)
                os.kill(self.victim, signal.SIGKILL)
        return answer(role, messages)


@pytest.fixture(scope="module")
def unkilled(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The result of a run that is not killed."""
    path = tmp_path_factory.mktemp("unkilled") / "run"
    with ChatServer(answer) as server:
        runner.start(path, server.url)
        assert runner.exit_code() == 0
        assert len(server.asked) == EXPECTED_REQUESTS
    text = path.with_suffix(".json").read_text()
    result = json.loads(text)
    assert [status for _, status, _, _ in result["rounds"]] == ["correct", "fault", "correct", "correct"]
    assert result["score"] == 4.5
    return text


@pytest.mark.slow
def test_killed_at_every_request(tmp_path: Path, runner: Runner, unkilled: str) -> None:
    """SIGKILL while a request is out, at every one of the run; each resume asks that one again and goes on."""
    killer = Killer(tmp_path / "run")
    kills = 0
    with ChatServer(killer) as server:
        while True:
            killer.victim, killer.kill_at = None, killer.seen + (1 if kills == 0 else 2)
            killer.victim = runner.start(killer.path, server.url)
            if (code := runner.exit_code()) == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            assert kills <= EXPECTED_REQUESTS, "the run makes no headway"
    assert kills == EXPECTED_REQUESTS
    assert killer.path.with_suffix(".json").read_text() == unkilled
    assert killer.twice == []
    # What was out at a kill has to be asked again; nothing else may be.
    assert len(server.asked) == EXPECTED_REQUESTS + kills


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("seed", range(4))
def test_killed_while_files_appear(tmp_path: Path, runner: Runner, unkilled: str, seed: int) -> None:
    """SIGKILL as soon as there are some more files than before, or a random moment later."""
    chance = random.Random(seed)
    killer = Killer(tmp_path / "run")
    kills = 0
    with ChatServer(killer) as server:
        while True:
            goal = entries(tmp_path) + chance.randint(1, 8)
            victim = runner.start(killer.path, server.url)
            while not runner.ended() and entries(tmp_path) < goal:
                time.sleep(0.0005)
            if not runner.ended(chance.choice((0, chance.random() * 0.02))):
                with contextlib.suppress(ProcessLookupError):  # it ended, and its parent has yet to say so
                    os.kill(victim, signal.SIGKILL)
            if (code := runner.exit_code()) == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
    assert kills >= 5
    assert killer.path.with_suffix(".json").read_text() == unkilled
    assert killer.twice == []
    assert not [path for path in tmp_path.rglob(".*") if path.parent == killer.path or path.suffix == ".tmp"]


class _Killed(BaseException):
    """Stands for SIGKILL inside this process: nothing in the package may catch it."""


def _steps(path: Path) -> Iterator[str]:
    yield from (str(found.relative_to(path)) for found in sorted(path.rglob("*")) if found.name != "lock")


@pytest.mark.slow
@pytest.mark.parametrize("before_rename", [True, False])
def test_a_run_can_be_cut_at_every_single_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_rename: bool
) -> None:
    """Cut at write 1, 2, 3 ... of the run, just before and just after the rename; the folder ends the same."""

    class Server:
        name = "plain-http"

        def __init__(self) -> None:
            self.asked: list[str] = []

        def ask(self, request: Request) -> Reply:
            messages = [{"role": m.role, "content": m.content} for m in request.messages]
            self.asked.append(messages_hash(messages))
            return Reply(answer(request.role, messages)[1], self.name, Usage())

    replace = Path.replace
    writes = 0
    cut_at: int | None = None

    def cutting(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if writes == cut_at and before_rename:
            raise _Killed
        result = replace(self, target)
        if writes == cut_at:
            raise _Killed
        return result

    monkeypatch.setattr(Path, "replace", cutting)
    monkeypatch.setattr(folder.os, "fsync", lambda _: None)
    settings = Settings("cudamaster", ROUNDS, TRIES, "stand-in", dict.fromkeys(ROLES, "plain-http"))

    def run(path: Path, server: Server, bench: ScriptedWorkbench) -> None:
        models = dict.fromkeys(Role, server)
        if path.exists():
            resume(path, bench, models)
        else:
            optimize(path, bench, models, settings)

    whole = Server()
    run(tmp_path / "whole", whole, ScriptedWorkbench())
    total, files = writes, list(_steps(tmp_path / "whole"))
    assert total > 60
    for point in range(1 if before_rename else 2, total + 1, 4):
        path, server, bench = tmp_path / f"cut{point}", Server(), ScriptedWorkbench()
        writes, cut_at = 0, point
        with pytest.raises(_Killed):
            run(path, server, bench)
        cut_at = None
        before = set(on_disk(path))
        asked = len(server.asked)
        run(path, server, bench)
        assert not before & set(server.asked[asked:]), "asked again what was stored"
        assert len(server.asked) <= len(whole.asked) + 1
        assert len(bench.evaluated) <= len(set(bench.evaluated)) + 1
        assert list(_steps(path)) == files
        assert (path / "best.cu").read_text() == (tmp_path / "whole" / "best.cu").read_text()


def test_a_finished_run_gives_its_result_without_asking(tmp_path: Path) -> None:
    script = [plan("A"), code(kernel(score=2.0, tag="a")), command()]
    settings = Settings("cudamaster", 1, 0, "stand-in", dict.fromkeys(ROLES, "scripted"))
    first = optimize(tmp_path / "run", ScriptedWorkbench(), ScriptedModel(script).for_all(), settings)
    silent, bench = ScriptedModel([]), ScriptedWorkbench()
    assert resume(tmp_path / "run", bench, silent.for_all()) == first
    assert (silent.requests, bench.evaluated, bench.profiled) == ([], [], [])
