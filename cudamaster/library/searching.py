"""A search from what is asked for to the run that it becomes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError
from cudamaster.core.values import MODEL_ROLES, Candidate, Precision, ProfileMode, Role, Verdict
from cudamaster.library.progress import Progress
from cudamaster.library.ranges import LARGEST_SEED, MOST_ROUNDS, must_be_within
from cudamaster.library.search_lines import Lines
from cudamaster.library.search_options import (
    BudgetOptions,
    ModelOptions,
    RecordOptions,
    SearchOptions,
    must_be_priced,
)
from cudamaster.library.subjects import choose_device, load_task, precision_of
from cudamaster.models import choose
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Model
from cudamaster.outside import client
from cudamaster.runs import backends, optimization, searching
from cudamaster.runs.budget import Budget, Limits, Spent
from cudamaster.runs.carrying import More
from cudamaster.runs.spending import spent
from cudamaster.strategies.protocol import Both, Observer
from cudamaster.strategies.result import Result

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet
    from cudamaster.devices.protocol import Device
    from cudamaster.runs.searching import Search
    from cudamaster.tasks.cards import TaskCard

Place = str | os.PathLike[str]
_KEPT = "A run resumes with the settings that it was started with"
_REPLAYED = "A replay goes by the settings of its record"


@dataclass(frozen=True)
class Run:
    """A search that has ended: its folder, its result, and what it cost.

    `path` is the run folder, as `cudamaster show` reads it. `spent` counts all sessions. `notes` say which options a
    model did not take.
    """

    path: Path
    result: Result
    spent: Spent
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Candidate:
        """The best kernel, which is the baseline if nothing beat it. Its code is in `best.cu` of the folder too."""
        return self.result.best

    @property
    def verdict(self) -> Verdict:
        """The best kernel's verdict."""
        return self.result.verdict

    @property
    def score(self) -> float:
        """P of the best kernel, its speedup over the baseline; 1.0 for the baseline itself."""
        return self.result.score


@dataclass(frozen=True)
class Prepared:
    """A search of which everything is known and checked before it begins.

    `models` are those that answer, by role. `was_finished` is true for a run that has nothing more to do.
    """

    search: Search
    limits: Limits
    models: Mapping[Role, Model]
    notes: tuple[str, ...]
    was_finished: bool

    def run(self, observer: Observer | None = None) -> Run:
        """Carry it to its end, or to that of its budget. Raises what `runs.optimization.optimize` raises."""
        earlier = self.search.earlier
        budget = Budget(self.limits, spent(earlier) if earlier is not None else None)
        result = self.search.run(budget, observer, self.models)
        return Run(self.search.path, result, budget.spent, self.notes)


def prepare(
    task: str | os.PathLike[str] | TaskCard | None,
    precision: str | None,
    search: SearchOptions,
    models: ModelOptions,
    out: Path,
    resumed: Path | None,
    records: RecordOptions,
    budget: BudgetOptions,
    unit: str | None = None,
    fleet: Fleet | None = None,
) -> Prepared:
    """A new search, the continuation of a run or the replay of a record; `unit` is the device to use of several.

    With a `fleet`, nodes of its cluster judge. Raises UsageError, CardError, DeviceError, ModelError for a missing key,
    and RunFolderError.
    """
    client.must_be_outside("A search")
    wanted = _wanted(task, precision, search, models, out, resumed, records, unit)
    if task is not None and not isinstance(task, str | os.PathLike):
        wanted = replace(wanted, loaded=task)  # which may be in no file
    wanted = replace(wanted, fleet=fleet)
    settings, earlier = wanted.settings, wanted.earlier
    limits = budget.limits(earlier.sessions[-1].limits if earlier is not None and earlier.sessions else None)
    finished = wanted.is_finished
    objects = _objects(wanted, models)
    if earlier is not None and not finished:
        backends.models_must_be_usable(settings, objects)
    _ = wanted.workbench  # a device that is missing is said before models are looked up
    asked = {**wanted.models(limits), **objects}
    if not finished:
        _playbook_must_know(wanted, asked)
    must_be_priced(asked, limits)
    return Prepared(wanted, limits, asked, choose.left_out(settings.sampling, asked), finished)


def _playbook_must_know(wanted: Search, asked: Mapping[Role, Model]) -> None:
    """Raise before anything is measured, if the playbook is to plan or write kernels for a task that it lacks."""
    for role in (Role.PLANNER, Role.CODER):
        model = asked.get(role)
        if isinstance(model, PlaybookModel):
            model.steps(wanted.task, wanted.precision.value)


def optimize(
    task: str | os.PathLike[str] | TaskCard | None = None,
    *,
    precision: str | None = None,
    strategy: str | None = None,
    rounds: int | None = None,
    debug_tries: int | None = None,
    options: Mapping[str, str | bool | float] | None = None,
    device: str | Device | None = None,
    seed: int | None = None,
    profile: str | None = None,
    jump_factor: float | None = None,
    jump_above: float | None = None,
    examples: int | None = None,
    thresholds: str | None = None,
    model: str | Model | None = None,
    models: Mapping[str, str | Model] | None = None,
    base_url: str | None = None,
    temperature: float | None = None,
    reasoning_effort: str | None = None,
    out: Place = "runs",
    resume: Place | None = None,
    record: Place | None = None,
    replay: Place | None = None,
    replay_models: Place | None = None,
    real_time: bool = False,
    max_dollars: float | None = None,
    max_tokens: float | None = None,
    max_minutes: float | None = None,
    max_gpu_seconds: float | None = None,
    model_timeout: float | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> Run:
    """Search for a faster kernel for a task, in `rounds` rounds with up to `debug_tries` repairs each.

    The arguments are the options of `cudamaster optimize` (docs/commands.md, docs/models.md), and None is their
    default. `options` are those that only this strategy has (`--set`). `model` answers all agents, `models` those that
    it names by role ("planner", "coder" ...): a LiteLLM name such as "openai/o4-mini", "playbook", or an object with
    a `name` and a method `ask(Request) -> Reply`. `device` is a name or a device (see `choose_device`).

    A new run is kept in a folder under `out`, or in `record`, from its first moment, and `cudamaster show` reads it.
    `resume` is such a folder: the run goes on with the settings that it was started with, and what was done is not done
    or paid for again. Only rounds, tries, limits and (if it was started with one) the model object are given with it.
    `replay` repeats a recorded run without a model or a device.

    `observer` gets each step as values; derive from `Observer`. `progress` gets them as lines of text, and while a
    kernel is judged one a second, from a thread of its own. KeyboardInterrupt ends the search; everything so far is
    kept.

    Returns the run. A budget that is spent ends it with the best kernel so far and `result.stopped`. Raises UsageError,
    CardError, DeviceError, ModelError (a model cannot be reached, or no reply led to a kernel), RunFolderError, and
    BudgetSpent if not even the baseline was measured.
    """
    settled = {
        "strategy": strategy, "options": options, "profile": profile, "jump_factor": jump_factor,
        "jump_above": jump_above, "examples": examples, "thresholds": thresholds, "base_url": base_url,
        "temperature": temperature, "reasoning_effort": reasoning_effort,
    }  # fmt: skip
    names = {"model": model, "models": models}
    grows, inputs = {"rounds": rounds, "debug_tries": debug_tries}, {"device": device, "seed": seed}
    source = replay or replay_models
    if replay is not None and replay_models is not None:
        raise UsageError("A replay takes the replies from its record too.", "Leave replay_models out.")
    if real_time and source is None:
        raise UsageError("real_time needs a record.", "Give replay or replay_models, or leave real_time out.")
    if source is not None:
        _must_leave({**settled, **names, **grows, **(inputs if replay is not None else {})}, _REPLAYED)
    if resume is not None:
        named = {"model": model if isinstance(model, str) else None, **_names_in(models)}
        kept = {**settled, **inputs, **named, "precision": precision, "record": record}
        _must_leave(kept, _KEPT, "; rounds and debug_tries may be raised, and limits (max_...) given anew")
    must_be_within("rounds", rounds, 1, MOST_ROUNDS)
    must_be_within("debug_tries", debug_tries, 0, MOST_ROUNDS)
    must_be_within("examples", examples, 0, MOST_ROUNDS)
    must_be_within("seed", seed, 0, LARGEST_SEED)
    must_be_within("temperature", temperature, 0, 2)
    limits = BudgetOptions(max_dollars, max_tokens, max_minutes, max_gpu_seconds, model_timeout)
    _must_be_limits(max_dollars, max_tokens, max_minutes, max_gpu_seconds, model_timeout)
    _must_be_known("precision", precision, Precision)
    _must_be_known("profile", profile, ProfileMode)
    where, unit = _device(device)
    search = SearchOptions(
        strategy or "cudamaster", rounds, debug_tries,
        tuple(f"{name}={value}" for name, value in (options or {}).items()), where, seed, profile,
        2.0 if jump_factor is None else jump_factor, 8.0 if jump_above is None else jump_above,
        examples or 0, thresholds or "paper",
    )  # fmt: skip
    who = ModelOptions(model, _by_role(models), base_url, temperature, reasoning_effort)
    records = RecordOptions(_path(record), _path(replay), _path(replay_models), real_time)
    prepared = prepare(task, precision, search, who, Path(out), _path(resume), records, limits, unit)
    run = _watched(prepared, observer, progress)
    optimization.must_make_sense(run.path, run.result)
    return run


def _watched(prepared: Prepared, observer: Observer | None, progress: Progress | None) -> Run:
    if progress is None:
        return prepared.run(observer)
    lines = Lines(progress)
    try:
        return prepared.run(lines if observer is None else Both(observer, lines))
    finally:
        lines.close()


def _wanted(
    task: str | os.PathLike[str] | TaskCard | None,
    precision: str | None,
    search: SearchOptions,
    models: ModelOptions,
    out: Path,
    resumed: Path | None,
    records: RecordOptions,
    unit: str | None,
) -> Search:
    """The search that is asked for: a new one, the continuation of a run or the replay of a record."""
    if resumed is not None:
        if records.source is not None:
            raise UsageError(
                "A run is resumed or replayed, not both.", "Use --resume alone to continue a stopped replay."
            )
        return searching.resumed(resumed, More(search.rounds, search.debug_tries), _known_as(task))
    if task is None and records.source is None:
        raise UsageError("No task was given.", "Name one of `cudamaster tasks`, or give --resume RUN.")
    card = None if task is None else load_task(task)
    one = Precision(precision or Precision.FP32) if card is None else precision_of(card, precision)
    if card is None or records.source is not None:
        path, known_as = partial(records.path, out), _known_as(card)
        return searching.replayed(records.wanted, known_as, one, path, device=search.device, seed=search.seed)
    source = "" if card.source == card.name else card.source
    return searching.Search(
        records.path(out, card.name, one), card.name, one, search.settings(models), unit, card=source
    )


def _known_as(task: str | os.PathLike[str] | TaskCard | None) -> str | None:
    """What loads the task: its name, or the path of its card."""
    if task is None:
        return None
    return os.fspath(task) if isinstance(task, str | os.PathLike) else task.source


def _objects(wanted: Search, models: ModelOptions) -> dict[Role, Model]:
    """The model objects by the roles that they answer in this search. Raises UsageError for one that answers none."""
    roles = wanted.settings.models
    objects = models.objects(roles)
    for role, model in objects.items():
        if roles[role] != model.name:
            raise UsageError(
                f"{wanted.path} asks {roles[role]} as its {role.value}, not {model.name}.",
                "Give the model that it was started with, or none.",
            )
    return objects


def _must_leave(given: Mapping[str, object], why: str, may: str = "") -> None:
    """A setting that is given again would be ignored, so it is refused."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{why}.", f"Leave {name} out{may}.")


def _must_be_limits(*limits: float | None) -> None:
    for limit in limits:
        if limit is not None and not limit > 0:
            raise UsageError(f"A limit of {limit} lets nothing begin.", "Give a number above 0; inf lifts a limit.")


def _must_be_known(name: str, given: str | None, known: Iterable[str]) -> None:
    names = list(known)
    if given is not None and given not in names:
        raise UsageError(f"There is no {name} {given!r}.", f"Take one of {', '.join(names)}.")


def _device(device: str | Device | None) -> tuple[str, str | None]:
    """A device's name and unit: each search makes its own of them."""
    if device is None or device == "auto":
        return "auto", None
    chosen = choose_device(device)
    return chosen.name, None if isinstance(device, str) else chosen.unit


def _by_role(models: Mapping[str, str | Model] | None) -> dict[Role, str | Model | None]:
    known = {role.value: role for role in MODEL_ROLES}
    for role in models or {}:
        if role not in known:
            raise UsageError(f"There is no agent {role!r}.", f"Name models for {', '.join(known)}.")
    return {known[role]: model for role, model in (models or {}).items()}


def _names_in(models: Mapping[str, str | Model] | None) -> dict[str, object]:
    return {f"models[{role!r}]": model for role, model in (models or {}).items() if isinstance(model, str)}


def _path(place: Place | None) -> Path | None:
    return None if place is None else Path(place)
