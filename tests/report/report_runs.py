"""Run folders for tests of the report: real searches by scripted models; kernels say how long they take."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from search_stand_ins import (
    COMMAND,
    ScriptedModel,
    ScriptedWorkbench,
    code,
    command,
    kernel,
    plan,
)

from cudamaster.core.speed import compare, overall
from cudamaster.core.values import (
    Bottleneck,
    Candidate,
    CaseVerdict,
    Findings,
    Hardware,
    Modelled,
    Precision,
    Role,
    Status,
    Timing,
    Verdict,
)
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.report.data import TaskResult
from cudamaster.report.loading import load
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.tasks import cards

H200 = Hardware("NVIDIA H200", {"driver": "580.1", "CUDA toolkit": "13.0"}, emulated=False)
SIZES = ((1024, 50.0), (4096, 400.0), (16384, 3000.0))  # N, and microseconds of the baseline
TURNS = 40
AXES = load_thresholds().axes


class TimedBench(ScriptedWorkbench):
    """Times three sizes so that P is what the first line of the code says; the turns differ by 0.4 %."""

    def __init__(self, task: str, precision: Precision, hardware: Hardware) -> None:
        super().__init__(precision)
        self.card = cards.load(task)  # type: ignore[assignment]
        self.hardware = hardware
        self.baseline = Candidate(task, precision, kernel(score=1.0, tag="baseline"), COMMAND)

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The scripted verdict with times."""
        verdict = super().evaluate(candidate, to_beat=to_beat)
        model = self.hardware.modelled
        verdict = replace(verdict, emulated=self.hardware.emulated, device="stand-in", modelled=model)
        if not verdict.correct:
            return replace(verdict, cases=(CaseVerdict("N=1024", True, 1024.0, verdict.status, detail="wrong"),))
        assert verdict.score is not None
        timed = [(float(n), *samples(us, verdict.score)) for n, us in SIZES]
        cases = [
            CaseVerdict(
                f"N={n:g}",
                True,
                n,
                Status.CORRECT,
                timing=Timing(before, after),
                speed=compare(before, after),
                floor_us=0.0 if self.hardware.emulated else min(after) / 2,
                empty_us=10.0,
            )
            for n, before, after in timed
        ]
        if model is not None:
            cases = [replace(case, timing=None, modelled=model_of(case)) for case in cases]
        untimed = CaseVerdict("N=7", False, 7.0, Status.CORRECT)
        speed = overall(timed)
        return replace(verdict, cases=(untimed, *cases), speed=speed, score=speed.speedup, notes=("a NOTE",))

    def measure_again(self, candidate: Candidate) -> Verdict:
        """A second measurement says the same."""
        return self.evaluate(candidate)

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """The baseline waits for memory; what is faster moves more of it, and is bound by that."""
        fast = (verdict.score or 0) > 1.001
        moved = Bottleneck.BANDWIDTH if fast else Bottleneck.LATENCY
        measured = {AXES.compute: 10.0, AXES.dram: 60.0 if fast else 12.0, AXES.memory: 61.0 if fast else 13.0}
        for at, name in enumerate(load_thresholds().kept[Bottleneck.LATENCY]):
            measured.setdefault(name, 20.0 * (at + 1) * (1.5 if fast else 1.0))
        described = load_thresholds().described
        return Findings(candidate.id, "ncu", moved, "some_kernel", 0.9, {}, measured, described)


def model_of(case: CaseVerdict) -> Modelled:
    """A model that says what was measured."""
    assert case.times_us is not None
    return Modelled(*case.times_us, *case.times_us, "latency")


def samples(baseline_us: float, score: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Turns of a baseline and of a kernel that is faster by that factor, with a little noise, always the same."""
    before = tuple(baseline_us * (1 + 0.002 * ((i * 7) % 5 - 2)) for i in range(TURNS))
    after = tuple(baseline_us / score * (1 + 0.002 * ((i * 3) % 5 - 2)) for i in range(TURNS))
    return before, after


def settings(model: str = "scripted", rounds: int = 2, **changed: object) -> Settings:
    """Settings of a scripted run."""
    return replace(Settings("cudamaster", rounds, 0, "stand-in", dict.fromkeys(ROLES, model)), **changed)  # type: ignore[arg-type]


def script(*outcomes: float | str) -> list[tuple[Role, str]]:
    """Replies for one round each: a score, or a status that is no success."""
    replies: list[tuple[Role, str]] = []
    for at, outcome in enumerate(outcomes):
        text = kernel(score=outcome, tag=f"k{at}") if isinstance(outcome, float) else kernel(outcome, tag=f"k{at}")
        replies += [plan(f"idea {at}"), code(text), command(f"{COMMAND} --use_fast_math")]
    return replies


def run(
    path: Path,
    task: str = "dot_product",
    precision: Precision = Precision.FP32,
    outcomes: Sequence[float | str] = (2.0, 3.0),
    hardware: Hardware = H200,
    *,
    replies: Sequence[tuple[Role, str]] | None = None,
    **changed: object,
) -> Path:
    """A run folder at `path`; where the replies end before the search does, it is left as a kill would leave it."""
    model = ScriptedModel(list(replies) if replies is not None else script(*outcomes))
    chosen = settings(rounds=len(outcomes), **changed)  # type: ignore[arg-type]
    models = dict.fromkeys(chosen.models, model)
    with contextlib.suppress(StopIteration):
        optimize(path, TimedBench(task, precision, hardware), models, chosen)
    return path


def runs(folder: Path, scores: Mapping[str, Sequence[float | str]], **rest: object) -> Path:
    """A folder of runs, one for each task, all of one search: the outcomes are filled up to the same number."""
    rounds = max(len(outcomes) for outcomes in scores.values())
    folder.mkdir(parents=True, exist_ok=True)
    for task, outcomes in scores.items():
        padded = [*outcomes, *["wrong"] * (rounds - len(outcomes))]
        run(folder / task, task, outcomes=padded, **rest)  # type: ignore[arg-type]
    return folder


def only(path: Path) -> TaskResult:
    """The one result that a path holds."""
    (result,) = load([path]).results
    return result


def kept_of(path: Path, folder: Path, form: int) -> Path:
    """A folder as results/ has them, of a run."""
    folder.mkdir()
    best = json.loads((path / "best.json").read_text())
    for name in ("best.cu", "best.json"):
        shutil.copy(path / name, folder / name)
    shutil.copy(path / best["verdict"], folder / "verdict.json")
    shutil.copy(path / "findings" / f"{best['candidate']}.json", folder / "findings.json")
    (folder / "run.json").write_text(json.dumps({**json.loads((path / "run.json").read_text()), "format": form}))
    return folder
