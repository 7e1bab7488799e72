"""A recorded search, from its start or from where it was stopped, to its end. `optimize` calls this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cudamaster.core.errors import BudgetSpent, CudaMasterError, ModelError, RunFolderError
from cudamaster.core.values import Candidate, Findings, Role, Verdict
from cudamaster.core.version import program
from cudamaster.models.protocol import Model
from cudamaster.profiling.migration import Migration, migration
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.runs import carrying, worked_examples
from cudamaster.runs.budget import Budget
from cudamaster.runs.carrying import More
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.record import FORMAT, Manifest, Settings
from cudamaster.runs.recording import RecordedWorkbench, Recorder
from cudamaster.runs.spending import Spending
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Both, Observer, ReportsMoves, Resident, Workbench
from cudamaster.strategies.result import Result


def optimize(
    path: Path,
    workbench: Workbench,
    models: Mapping[Role, Model],
    settings: Settings,
    observer: Observer | None = None,
    budget: Budget | None = None,
) -> Result:
    """Start a fresh run in the folder `path`, which must not exist, and run it until it or its budget ends.

    Raises RunFolderError, ModelError, DeviceError and UsageError, and BudgetSpent if not even the baseline could be
    judged. What was done until then is in the folder, and `resume` continues from there.
    """
    registry.find(settings.strategy)
    manifest = _manifest(workbench, settings)
    with RunFolder.create(path, manifest) as folder:
        return _search(folder, workbench, models, observer or Observer(), budget or Budget())


def resume(
    path: Path,
    workbench: Workbench,
    models: Mapping[Role, Model],
    observer: Observer | None = None,
    budget: Budget | None = None,
    more: More | None = None,
) -> Result:
    """Continue an earlier run to its end, with its own settings (`record.read_manifest`) and `more`.

    No model is asked again for a stored reply, and no candidate is judged again. A finished run returns its result, or
    continues if it has more to do. Raises RunFolderError if the folder is damaged, or if task, card, device or models
    are not those of the run; and whatever `carrying.settings_with` and `optimize` raise.
    """
    with RunFolder.open(path) as folder:
        _must_belong(folder, workbench, models)
        settings = carrying.settings_with(path, more or More())
        if settings != folder.manifest.settings:
            folder.carry_on(settings)
        return _search(folder, workbench, models, observer or Observer(), budget or Budget())


def must_make_sense(path: Path, result: Result) -> None:
    """Raise ModelError if no round of the run in `path` produced a kernel. The replies are in the folder."""
    if result.senseless is not None:
        raise ModelError(
            f"No round produced a kernel: {result.senseless.rstrip('.')}.",
            f"The replies are in {path / 'exchanges'}; start a fresh run with another model.",
        )


def _search(
    folder: RunFolder, workbench: Workbench, models: Mapping[Role, Model], observer: Observer, budget: Budget
) -> Result:
    with Spending(folder, budget) as spending:
        run = folder.manifest
        examples = worked_examples.choose(run.task, run.precision, run.settings.examples, run.card)
        recorded = worked_examples.shown(Recorder(folder, spending, observer).models(models), examples)
        if isinstance(workbench, ReportsMoves):
            workbench.on_move = observer.moved
        workbench = RecordedWorkbench(workbench, folder, spending)
        residents = [model for model in models.values() if isinstance(model, Resident)]
        watched: Observer = _SavesBest(folder, observer)
        for resident in residents:
            watched = Both(watched, resident.observer)
        frame = registry.begin(workbench, recorded, run.settings, watched)
        try:
            with _at_work(residents, folder):
                result = registry.run(frame, run.settings)
        except BudgetSpent as spent:
            if not frame.has_begun:
                raise
            spending.end(spent.reason)
            result = frame.result(f"{spent.reason} {spent.fix}", stopped=True)
            observer.stopped(str(result.note))
            return result
        _save_summary(folder, result)
    return result


@contextmanager
def _at_work(residents: Sequence[Resident], folder: RunFolder) -> Iterator[None]:
    """The time in which programs of the user's are at work beside the run, and could write into its folder."""
    if not residents:
        yield
        return
    folder.guard()
    try:
        with ExitStack() as ending:
            for resident in residents:
                ending.enter_context(resident.at_work())
            yield
    except CudaMasterError:
        folder.must_be_own()
        raise
    folder.must_be_own()


def _save_summary(folder: RunFolder, result: Result) -> None:
    folder.save_summary(
        {
            "task": folder.manifest.task,
            "precision": folder.manifest.precision,
            "improved": result.improved,
            "score": result.score,
            "emulated": result.verdict.emulated,
            **({} if result.verdict.modelled is None else {"modelled": result.verdict.modelled}),
            "complete": result.verdict.complete,
            "best": result.best.id,
            "command": result.best.command,
            "baseline": result.baseline.id,
            "note": result.note,
            "migration": _migration(folder, result),
            "rounds": result.rounds,
            "usage": result.usage,
        }
    )


def _migration(folder: RunFolder, result: Result) -> Migration | None:
    """What the best kernel changed in the hardware's terms; None where nothing improved or nothing was profiled."""
    before, after = folder.findings(result.baseline.id), folder.findings(result.best.id)
    if not result.improved or before is None or after is None:
        return None
    return migration(before, after, load_thresholds())


def _manifest(workbench: Workbench, settings: Settings) -> Manifest:
    measures = settings.replay is None or settings.replay.models_only  # otherwise no program is started, not even git
    return Manifest(
        format=FORMAT,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=program(with_commit=measures),
        task=workbench.card.name,
        precision=workbench.precision,
        card_hash=workbench.card.hash,
        baseline=workbench.baseline.id,
        hardware=workbench.hardware,
        settings=settings,
        suite=workbench.card.suite,
        card="" if workbench.card.source == workbench.card.name else workbench.card.source,
        baseline_by=workbench.card.baseline_by,
    )


def _must_belong(folder: RunFolder, workbench: Workbench, models: Mapping[Role, Model]) -> None:
    run = folder.manifest
    pairs = {
        "task": (run.task, workbench.card.name),
        "precision": (run.precision.value, workbench.precision.value),
        "device": (run.hardware.name, workbench.hardware.name),
        "task card": (run.card_hash, workbench.card.hash),
        "baseline kernel or default command": (run.baseline, workbench.baseline.id),
        **{
            f"{role.value} model": (name, models[role].name if role in models else "missing")
            for role, name in run.settings.models.items()
        },
    }
    for what, (then, now) in pairs.items():
        if then != now:
            raise RunFolderError(
                f"{folder.path} belongs to another run: its {what} is {then}, not {now}.",
                "Resume it with the settings that it was started with, or start a fresh run.",
            )


class _SavesBest(Observer):
    """Passes every event on, and keeps the best so far in the folder."""

    def __init__(self, folder: RunFolder, inner: Observer) -> None:
        self._folder = folder
        self._inner = inner
        others = {name for name in vars(Observer) if not name.startswith("_")} - {"baseline", "improved"}
        vars(self).update({name: getattr(inner, name) for name in others})

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        self._folder.save_best(candidate, verdict, 1.0)
        self._inner.baseline(candidate, verdict, findings)

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        self._folder.save_best(candidate, verdict, score)
        self._inner.improved(candidate, verdict, findings, score)
