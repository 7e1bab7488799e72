"""What becomes of work where a node is slow, has a full disk, or is killed: on a cluster of real Ray nodes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_cards import small_card

from cluster.conftest import Nodes, on
from cluster.own_tasks import kernel, made
from cudamaster.audit import corpus, running
from cudamaster.audit.running import Subject
from cudamaster.cli.suite import _search_by
from cudamaster.cluster import ray_calls
from cudamaster.cluster.auditing import ClusterAudit
from cudamaster.cluster.fleet import Fleet, Station, _each_gpu_once, _of_the_same_program
from cudamaster.cluster.keeper import TEMPORARY, Compiler
from cudamaster.cluster.parcel import packed
from cudamaster.cluster.remote_builder import RemoteBuilder, shared_by
from cudamaster.cluster.workbench import ClusterWorkbench
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import Candidate, Precision, Role, Status, Verdict
from cudamaster.devices.choose import choose
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.runs.budget import Budget
from cudamaster.runs.record import Settings, decoded
from cudamaster.suites import scheduler
from cudamaster.suites.folder import State, SuiteFolder
from cudamaster.suites.progress import Board
from cudamaster.tasks import cards

pytestmark = pytest.mark.slow  # the cluster alone takes seconds

SETTINGS = Settings("cudamaster", 1, 0, "cpu", dict.fromkeys(list(Role)[:4], "playbook"), seed=5)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("own"))


def bench(fleet: Fleet, own: Path, unit: str | None = None) -> tuple[ClusterWorkbench, list[str], list[str]]:
    """A workbench for a user's own task, with the lines and the build logs that come of it."""
    card = cards.load(str(own / "tasks" / "twice.yaml"))
    made = ClusterWorkbench(fleet, card, Precision.FP32, unit=unit, seed=5)
    lines: list[str] = []
    logs: list[str] = []
    made.on_move = lines.append
    made.on_build = lambda _candidate, log: logs.append(log)
    return made, lines, logs


def test_a_slow_node_is_not_taken_for_dead(fleet: Fleet, nodes: Nodes, own: Path) -> None:
    slow = on(fleet, nodes.head)
    pid = int(ray_calls.answer(slow.actor.__ray_call__.remote(lambda _: __import__("os").getpid())))
    waiting, lines, logs = bench(fleet, own, slow.is_.unit)
    holds: list[Any] = []
    waiting.on_hold = holds.append
    got: list[Verdict] = []
    os.kill(pid, signal.SIGSTOP)
    try:
        asking = threading.Thread(
            target=lambda: got.append(waiting.evaluate(replace(waiting.baseline, code=kernel("twice"))))
        )
        asking.start()
        while not slow.calls:
            time.sleep(0.01)
        others = {fleet.choose().node for _ in range(3)}
        asking.join(3.0)
        assert asking.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
    asking.join()
    assert slow.node not in others
    assert slow.left_out is None
    assert lines == []
    assert len(logs) == 1
    assert "outcome: built" in logs[0]
    assert got[0].correct
    assert got[0].hardware["node"] == slow.node
    assert got[0].hardware["unit"] == slow.is_.unit == f"cpu of {slow.node}"
    assert {hold.unit for hold in holds} == {slow.is_.unit}


def test_a_node_with_a_full_disk_is_left_out(fleet: Fleet, nodes: Nodes, own: Path) -> None:
    full = on(fleet, nodes.full)
    sent, lines, _ = bench(fleet, own, full.is_.unit)
    verdict = sent.evaluate(replace(sent.baseline, code=kernel("twice")))
    assert verdict.correct
    assert verdict.hardware["node"] != full.node
    assert len(lines) == 1
    assert f"instead of {full.node}, which is left out: its " in lines[0]
    assert "full" in lines[0] or "cannot be used" in lines[0]
    assert full.left_out is not None
    again, lines, _ = bench(fleet, own, full.is_.unit)
    assert again.evaluate(replace(again.baseline, code=kernel("twice"))).hardware["node"] != full.node
    assert lines == []


def test_errors_of_the_task_leave_no_node_out(fleet: Fleet, tmp_path: Path) -> None:
    folder = made(tmp_path / "broken", ("broken",))
    path = folder / "fp32" / "broken.cu"
    path.write_text(path.read_text().replace("int i =", "int i == "))
    before = [station.left_out for station in fleet.stations]
    sent = ClusterWorkbench(fleet, cards.load(str(folder / "tasks" / "broken.yaml")), Precision.FP32, seed=5)
    with pytest.raises(DeviceError, match="does not compile"):
        sent.evaluate(replace(sent.baseline, code=kernel("broken")))
    assert [station.left_out for station in fleet.stations] == before


def test_an_audit_is_spread_over_nodes(fleet: Fleet, own: Path) -> None:
    card = cards.load(str(own / "tasks" / "twice.yaml"))
    kinds = [kind for kind in corpus.load() if kind.name in ("nothing", "host_thread")]
    lines: list[str] = []
    spread = ClusterAudit(fleet, lines.append)
    there = [(kind, Subject(card, Precision.FP32, spread.device)) for kind in kinds]
    here = [(kind, Subject(card, Precision.FP32, choose("cpu"))) for kind in kinds]
    new: list[bool] = []
    found = running.run(there, {}, 2, lambda _, is_new: new.append(is_new), spread.outcomes)
    wanted = running.outcomes(here, {})
    assert sorted((one.kind, one.result, one.by) for one in found) == sorted(
        (one.kind, one.result, one.by) for one, _ in wanted
    )
    assert new == [True, True]
    known = {one.key: one for one in found}
    again = running.run(there, known, 2, lambda _, is_new: new.append(is_new), spread.outcomes)
    assert sorted(one.kind for one in again) == ["host_thread", "nothing"]
    assert new[2:] == [False, False]
    assert lines == []


@pytest.mark.nvcc
def test_nodes_without_a_gpu_compile(fleet: Fleet, nodes: Nodes, tmp_path: Path, monkeypatch: Any) -> None:
    """The built files come as content into the cache of the node with the GPU, which here has none."""
    gpu = LocalGpu(0, "NVIDIA H200", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700.00")
    card, device = small_card("relu"), CudaDevice(gpu)
    there = [node for node in ray_calls.nodes() if node.name == on(fleet, nodes.head).node]
    actor = ray_calls.start(Compiler, (), there[0], cpus=1)
    lines: list[str] = []
    builder = RemoteBuilder(card, Precision.FP32, device, parcel=packed(card, Precision.FP32), gpu=gpu,
                            nodes=shared_by([(actor, "there")]), say=lines.append)  # fmt: skip
    builder.build_shared()
    # A cache of its own, but for what candidates share.
    shared = builder.device_cache()
    mine = tmp_path / "cache" / shared.parent.name / shared.name
    mine.mkdir(parents=True)
    (mine / "harnesses").symlink_to(shared / "harnesses")
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path / "cache"))
    text = (Path("cudamaster/playbook/relu/fp32/1_wide_loads.cu")).read_text()
    candidate = Candidate("relu", Precision.FP32, text, device.default_command)
    passed: list[bool] = []
    build = builder.build(candidate, on_compile=lambda: passed.append(True))
    assert build.status is None, build.log
    assert build.worker is not None
    assert build.worker.is_relative_to(tmp_path)
    assert os.access(build.worker, os.X_OK)
    assert not list(build.worker.parent.glob("*.o"))  # they stayed where it was compiled
    assert "ptxas" in builder.built(candidate).record["compile log"]
    assert passed == [True]
    refused = builder.build(replace(candidate, code=text.replace("float4", "float5")))
    assert refused.status is Status.COMPILE_ERROR
    ray_calls.end([actor], 1.0)
    own = builder.build(replace(candidate, command=f"{candidate.command.replace('-O3', '-O2')}"))
    assert own.status is None
    assert list(own.worker.parent.glob("*.o")) if own.worker else False
    assert lines == ["there compiles no more: its process or its node ended. Its builds are made elsewhere."]


def test_a_suite_loses_nothing_with_a_node(fleet: Fleet, nodes: Nodes, own: Path, tmp_path: Path) -> None:
    """One node is killed while it judges; the results are those of this machine alone."""
    paths = {name: str(own / "tasks" / f"{name}.yaml") for name in ("twice", "thrice")}
    plan = scheduler.new(SETTINGS, [(name, Precision.FP32) for name in paths], paths)
    doomed = on(fleet, nodes.doomed)
    units = (doomed.is_.unit, on(fleet, nodes.head).is_.unit)
    killed: list[str] = []
    lines: tuple[str, ...] = ()

    def kill(board: Board) -> None:
        nonlocal lines
        lines = board.again
        for view in board.running:
            judged = tmp_path / "there" / view.entry.name / "builds"
            if not killed and view.entry.unit == doomed.is_.unit and list(judged.glob("*.log")):
                killed.append(view.entry.name)
                nodes.cluster.remove_node(nodes.doomed, allow_graceful=False)

    ended = {}
    for where, on_fleet, show, at in (("there", fleet, kill, units), ("here", None, lambda _: None, ("cpu",))):
        with SuiteFolder.create(tmp_path / where, plan) as folder:
            search = _search_by(SETTINGS, on_fleet)
            ended[where] = scheduler.run(folder, plan, search, Budget(), at, 2, show)
    assert [entry.state for entry in ended["there"].entries] == [State.DONE, State.DONE]
    assert killed
    moved = [line for line in lines if "continues on" in line]
    assert len(moved) == 1
    assert moved[0].startswith(f"{killed[0]}: ")
    assert f"instead of {doomed.node}, which is left out: " in moved[0]
    for name in ("twice_fp32", "thrice_fp32"):
        here, there = (verdicts(tmp_path / where / name) for where in ("here", "there"))
        assert set(here) == set(there)
        assert len(here) == 2
        for candidate, verdict in here.items():
            other = there[candidate]
            assert (verdict.status, verdict.detail, verdict.score) == (other.status, other.detail, other.score)
            assert "node" not in verdict.hardware
            assert other.hardware["node"] in {station.node for station in fleet.stations}
        # A verdict that came home before the end of its node is kept; what comes later is from another one.
        assert list(there.values())[-1].hardware["node"] != doomed.node
    scores = [[entry.score for entry in ended[where].entries] for where in ("here", "there")]
    assert scores[0] == scores[1]


def verdicts(run: Path) -> dict[str, Verdict]:
    """The verdicts of a run by the candidates' ids, in the order in which they came."""
    paths = sorted((run / "verdicts").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return {path.stem: decoded(Verdict, path) for path in paths}


def test_ctrl_c_leaves_nothing_running(fleet: Fleet, nodes: Nodes, own: Path, tmp_path: Path) -> None:
    """It ends within seconds, with the line to resume; the actors and what they run end with it."""
    before, left = keepers(nodes), temporary(nodes)
    where = ("--device", "cpu", f"--ray={nodes.address}", "--out", str(tmp_path), "--json")
    task = str(own / "tasks" / "thrice.yaml")
    command = [sys.executable, "-m", "cudamaster", "optimize", task, "-R", "1", "-D", "0", "--seed", "6", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: list(tmp_path.glob("*/builds/*.log")) or process.poll() is not None)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert time.monotonic() - began < 15
    # Of the three nodes one may be left out by now: tests before this one fill its disk.
    measuring = r", measuring: [23] x CPU device on [23] nodes; compiling alone: 0"
    assert re.search(re.escape(f"Cluster at {nodes.address}") + measuring, said)
    assert "--resume" in said
    assert out == "" or json.loads(out)
    wait_for(lambda: keepers(nodes) == before)
    assert temporary(nodes) == left


def keepers(nodes: Nodes) -> set[str]:
    """The processes of our actors on these nodes."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    actors = [line.split()[0] for line in found.splitlines() if "ray::Keeper" in line]
    return {pid for pid in actors if f"TMPDIR={nodes.temporary}\0".encode() in environment(pid)}


def environment(pid: str) -> bytes:
    """That of a process, nothing if it has ended."""
    try:
        return (Path("/proc") / pid / "environ").read_bytes()
    except OSError:
        return b""


def temporary(nodes: Nodes) -> set[Path]:
    """The folders of temporary files of our actors."""
    return set(nodes.temporary.glob(f"{TEMPORARY}*"))


def wait_for(there: Callable[[], object], limit_s: float = 240.0) -> None:
    until = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_nodes_with_another_program_are_left_out(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudamaster.cluster.fleet.program_hash", lambda: "0" * 16)
    there = ray_calls.nodes()
    notes: list[str] = []
    assert _of_the_same_program(there, notes) == []
    assert [note.partition(" ")[0] for note in notes] == [node.name for node in there]
    assert all("its cudamaster is another one" in note and "install the same on all nodes" in note for note in notes)


def test_two_nodes_with_one_gpu_are_one(fleet: Fleet) -> None:
    """Nodes of one machine that were not told which GPU is theirs both name the first."""
    first = fleet.stations[0]
    twin = Station(None, "twin", first.is_)
    notes: list[str] = []
    assert _each_gpu_once([first, twin], notes) == [first]
    assert notes[0].startswith(f"twin is left out: its GPU {first.is_.unit} is that of {first.node} too.")
