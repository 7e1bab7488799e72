"""One search from what was asked for to its result: fresh, carried on, or replayed from a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision, Role
from cudamaster.models.protocol import Model
from cudamaster.runs import backends, carrying, optimization, replaying
from cudamaster.runs.budget import Budget, Limits
from cudamaster.runs.carrying import More
from cudamaster.runs.record import Manifest, Replay, RunRecord, Settings, read_manifest, read_record
from cudamaster.runs.spending import last_unit
from cudamaster.strategies.protocol import Observer, Workbench
from cudamaster.strategies.result import Result
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet


@dataclass(frozen=True)
class Search:
    """A search for one task in the run folder `path`.

    `more` is what a run that is there is given; None for a run that is not. `unit` is the device to use of several.
    `card` is the path of the task's card, where its name alone does not find it; `loaded` is a card of a program's own.
    `fleet` is the cluster whose nodes judge its candidates; by default this machine does.
    """

    path: Path
    task: str
    precision: Precision
    settings: Settings
    unit: str | None = None
    more: More | None = None
    card: str = ""
    loaded: TaskCard | None = None
    fleet: Fleet | None = None

    @cached_property
    def earlier(self) -> RunRecord | None:
        """What the run has done; None for a fresh one."""
        return None if self.more is None else read_record(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether the run on the disk is finished, and is given nothing more: ask before running it."""
        return self.earlier is not None and self.earlier.finished and self.settings == self.earlier.manifest.settings

    @cached_property
    def workbench(self) -> Workbench:
        """What judges its candidates."""
        unit = self.unit
        if unit is None and self.earlier is not None:
            unit = last_unit(self.earlier.sessions)
        card = self.loaded or cards.load(self.card or self.task)
        model = self.earlier.manifest.hardware.name if self.earlier is not None else None
        return backends.workbench(self.settings, card, self.precision, unit, self.fleet, model)

    def models(self, limits: Limits) -> dict[Role, Model]:
        """The model of each role."""
        own = cards.load(self.card).folder if self.card else None
        return backends.models(self.settings, self.path, limits, own)

    def run(
        self, budget: Budget, observer: Observer | None = None, models: Mapping[Role, Model] | None = None
    ) -> Result:
        """Carry it to its end, or to that of the budget. A whole replay has to come to the result of its record."""
        models = models or self.models(budget.limits)
        if self.more is not None:
            result = optimization.resume(self.path, self.workbench, models, observer, budget, self.more)
        else:
            result = optimization.optimize(self.path, self.workbench, models, self.settings, observer, budget)
        record = backends.whole_record_of(self.settings)
        if record is not None and not result.stopped:
            replaying.must_agree(record, result)
        return result


def resumed(path: Path, more: More, task: str | None = None) -> Search:
    """The search of the run in `path`, which is one of `task` where that is given, with more to do.

    Raises UsageError for another task, and what `carrying.settings_with` raises.
    """
    manifest, settings = read_manifest(path), carrying.settings_with(path, more)
    if _name(task) not in (None, manifest.task):
        raise UsageError(f"{path} is a run of {manifest.task}, not of {task}.", "Leave TASK out with --resume.")
    return Search(path, manifest.task, manifest.precision, settings, more=more, card=card_of(manifest, task))


def card_of(manifest: Manifest, given: str | None = None) -> str:
    """The path of the card of a run's task: the one given, else where it was; empty if its name has to find it."""
    if given is not None and given.endswith(".yaml"):
        return given
    return manifest.card if manifest.card and Path(manifest.card).is_file() else ""


def _name(task: str | None) -> str | None:
    """The name of a task that is given by its name or by the path of its card."""
    return cards.load(task).name if task is not None and task.endswith(".yaml") else task


def replayed(
    replay: Replay,
    task: str | None,
    precision: Precision,
    path_of: Callable[[str, Precision], Path],
    *,
    device: str,
    seed: int | None,
) -> Search:
    """The search that replays a record: the run folder that `replay` names, or that of the task among its folders.

    `path_of` gives the path of a task's own run folder. Raises UsageError where the record is one of another task.
    """
    name = _name(task)
    record = replaying.find(Path(replay.record), name, precision)
    run = read_manifest(record)
    if name not in (None, run.task):
        raise UsageError(f"{record} is a record of {run.task}, not of {task}.", "Leave TASK out.")
    replay = changed(replay, record=str(record.resolve()))
    settings = backends.replayed_settings(run.settings, replay, device=device, seed=seed)
    return Search(path_of(run.task, run.precision), run.task, run.precision, settings, card=card_of(run, task))


def of_suite(
    path: Path,
    task: str,
    precision: Precision,
    settings: Settings,
    unit: str,
    card: str = "",
    fleet: Fleet | None = None,
) -> Search:
    """The search of one task of a suite, in its run folder: it goes on where it is there, with what the suite has."""
    if (path / "run.json").is_file():
        own, more = read_manifest(path).settings, carrying.as_in_suite(path, settings)
        return Search(path, task, precision, own, unit, more, card, fleet=fleet)
    if settings.replay is None:
        return Search(path, task, precision, settings, unit, card=card, fleet=fleet)
    again = replayed(settings.replay, task, precision, lambda *_: path, device=settings.device, seed=settings.seed)
    return changed(again, unit=unit, fleet=fleet)
