"""Which tasks a suite is of: those that were named, those of the records that it replays, or those it had before."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import replace as changed
from pathlib import Path

from cudamaster.core.errors import CardError, RunFolderError, UsageError, nearest
from cudamaster.core.values import Precision
from cudamaster.guards import symbols
from cudamaster.runs import backends, carrying, searching
from cudamaster.runs.record import Replay, Settings, read_manifest
from cudamaster.runs.replaying import folder_name
from cudamaster.suites import scheduler
from cudamaster.suites.folder import Suite
from cudamaster.tasks import cards, hgemm
from cudamaster.tasks.harness import baseline_region
from cudamaster.tasks.task_suites import TaskSuite


def fresh(
    settings: Settings,
    patterns: Sequence[str],
    precisions: Sequence[Precision],
    sample: int | None = None,
    of: TaskSuite | None = None,
) -> Suite:
    """A suite of the tasks that match: among those of the suite `of` or else all, the benchmark's without patterns.

    Patterns that begin with hgemm match the tasks of that suite's grid, or are the name of one of any shape; `sample`
    takes so many of them, spread over the sizes. Raises UsageError if a pattern matches none, and for a sample of none.

    Tasks that may allocate large memory through the driver have the machine to themselves while they are timed. They
    come last, so that other GPUs wait for them once, and not again and again. So do tasks that cannot be used, whose
    searches say why.
    """
    products, others = _divided(patterns)
    tasks: list[tuple[str, Precision]] = []
    sources: dict[str, str] = {}
    shapes: Sequence[str] = ()
    if of is not None and hgemm.is_meant(of.name):
        shapes = _matching(of.tasks, patterns)
    elif of is not None or others or not products:
        sources = _sources(of, others=bool(others))
        chosen = _matching(list(sources), patterns if of is not None else others)
        tasks = [(name, each) for name in chosen for each in _of(sources[name], precisions)]
        tasks.sort(key=lambda task: _is_last(sources[task[0]], task[1]))
    if of is None:
        shapes = _products(products)
    if sample is not None:
        if not shapes:
            raise UsageError("Samples are drawn from the suite hgemm alone.", "Add --tasks 'hgemm_tn_fp32_*', say.")
        shapes = hgemm.sample_names(shapes, sample)
    if not tasks and not shapes:
        raise UsageError(f"The suite {of.name if of else ''} has no tasks.", "Put their cards into its folder tasks/.")
    every = [*tasks, *((name, Precision.FP16) for name in shapes)]
    return scheduler.new(settings, every, {name: source for name, source in sources.items() if source != name})


def replayed(
    replay: Replay, patterns: Sequence[str], precisions: Sequence[Precision], *, device: str, seed: int | None
) -> Suite:
    """A suite of the records that match, in the folder of them that `replay` names.

    Raises UsageError if there are none, and if one is of a task that is not known here.
    """
    source = Path(replay.record)
    there = {path.parent.name for path in source.glob("*/run.json")}
    sources = {**_recorded(source, there), **_sources(None, others=True)}
    known = list(sources)
    products, others = _divided(patterns)
    names = _matching(known, others) if others or not products else []
    endings = tuple(folder_name("", each) for each in (*precisions, Precision.FP16))
    recorded = {name.rpartition("_")[0] for name in there if name.endswith(endings)}
    names += [name for name in sorted(recorded) if hgemm.is_name(name) and _matches(name, patterns)]
    unknown = [name for name in sorted(recorded - {*known, *names}) if _matches(name, patterns)]
    if unknown:
        raise UsageError(
            f"{source} holds records of tasks that are not known here: {', '.join(unknown)}.",
            "Set CUDAMASTER_TASKS to the folder that has them, or name other tasks with --tasks.",
        )
    tasks = [
        (name, each)
        for name in names
        for each in _of(sources.get(name, name), precisions)
        if folder_name(name, each) in there
    ]
    if not tasks:
        wanted = " or ".join(map(repr, patterns)) or "any task"
        raise UsageError(
            f"{source} holds no record of {wanted} in {' or '.join(precisions)}.",
            "A record is a folder <task>_<precision> with a run.json, as --record leaves them.",
        )
    first = read_manifest(source / folder_name(*tasks[0])).settings
    replay = changed(replay, record=str(source.resolve()))
    paths = {name: path for name, path in sources.items() if path != name}
    return scheduler.new(backends.replayed_settings(first, replay, device=device, seed=seed), tasks, paths)


def carried_on(suite: Suite, path: Path, more: carrying.More) -> Suite:
    """The suite in `path` with more to do. Raises UsageError for less than before, and for more of a replay."""
    settings = carrying.raised(suite.settings, more, str(path))
    if settings != suite.settings and settings.replay is not None:
        fix = "Continue the recorded suite instead."
        raise UsageError(f"{path} is a replay, which has the rounds of its records.", fix)
    return scheduler.carried_on(suite, settings)


def _sources(of: TaskSuite | None, *, others: bool) -> dict[str, str]:
    """Tasks that can be named, and what `cards.load` takes for each; without `others` the benchmark's alone."""
    if of is not None:
        return dict(zip(of.tasks, of.sources, strict=True))
    found = {name: name for name in cards.names()}
    for name in cards.own_names() if others else ():
        try:
            found[name] = cards.load(name).source
        except CardError:  # its search says why
            found[name] = name
    return found


def _recorded(source: Path, there: Collection[str]) -> dict[str, str]:
    """Tasks of one's own among records, and the paths of their cards where those are still there."""
    found = {}
    for folder in there:
        try:
            manifest = read_manifest(source / folder)
        except RunFolderError:  # its replay says why
            continue
        if path := searching.card_of(manifest):
            found[manifest.task] = path
    return found


def _is_last(source: str, precision: Precision) -> bool:
    """Whether a task comes after the others: it may ask the driver for memory, or cannot be used."""
    try:
        return symbols.may_ask_driver(baseline_region(cards.load(source), precision))
    except CardError:
        return True


def _of(name: str, precisions: Sequence[Precision]) -> Sequence[Precision]:
    """The precisions to search for a task in, those of a card that cannot be used included: its search says why."""
    try:
        return cards.load(name).among(precisions)
    except CardError:
        return precisions


def _divided(patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The patterns of the suite hgemm, and the others."""
    products = [pattern for pattern in patterns if pattern.startswith(hgemm.SUITE)]
    return products, [pattern for pattern in patterns if pattern not in products]


def _products(patterns: Sequence[str]) -> Sequence[str]:
    """Tasks of the suite hgemm that match, each once."""
    found: dict[str, None] = {}
    for pattern in patterns:
        names = hgemm.matching(pattern)
        if not names:
            fix = f"A name is like {hgemm.EXAMPLE}; M, N and K of the grid are {', '.join(map(str, hgemm.SIZES))}."
            raise UsageError(f"No task of the grid is named {pattern!r}.", fix)
        found.update(dict.fromkeys(names))
    return tuple(found)


def _matching(known: Sequence[str], patterns: Sequence[str]) -> list[str]:
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            fix = nearest(pattern, known, "`cudamaster tasks` shows the names.")
            raise UsageError(f"No task is named {pattern!r}.", fix)
    return [name for name in known if _matches(name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, one) for one in patterns)
