"""Goes through kinds and tasks, several at once, and saves each outcome the moment it is known."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, cast

from cudamaster.audit.corpus import Expect, Kind
from cudamaster.audit.outcomes import Outcome, Result, outcome
from cudamaster.audit.regions import NoCheat, region
from cudamaster.core.errors import UsageError, unwritable
from cudamaster.core.records import from_json, to_json
from cudamaster.core.values import Candidate, Precision, Verdict, content_hash
from cudamaster.devices.protocol import Device
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.workbench.evaluation import Workbench

BATCH = 8  # candidates that one judge is asked about
EMULATED_BATCH = 2  # where each has a judge of its own
TIMED_CALLS = 10  # a candidate that is to be seen in timed calls
CALL_LIMIT_S = 10.0  # of a call on a device that only emulates
VARIED = ("spmv_csr", "triangle_attention", "layer_norm", "sorting", "dot_product")


class Described(Protocol):
    """What has to be known of a device to plan an audit on it, wherever it is."""

    @property
    def name(self) -> str:
        """Name for --device."""
        ...

    @property
    def emulated(self) -> bool:
        """Whether its times are not measured on a GPU."""
        ...

    @property
    def default_command(self) -> str:
        """The compile command of a candidate whose kind names none."""
        ...


@dataclass(frozen=True)
class Subject:
    """A task in one precision on a device. Only where the device itself is, not its description, are there verdicts.

    `builder` makes what builds candidates (Workbench), if that is not the usual.
    """

    card: TaskCard
    precision: Precision
    device: Described
    builder: Callable[..., Any] | None = None

    @cached_property
    def timed_cases(self) -> tuple[Case, ...]:
        """Timed cases that the device runs in an audit: all, or the lightest where it only emulates."""
        timed = tuple(case for case in self.card.cases if case.sweep)
        return (min(timed, key=lambda case: case.weight),) if self.device.emulated else timed

    @cached_property
    def heaviest(self) -> tuple[Case, ...]:
        """Those of them that count as the largest."""
        largest = max(case.weight for case in self.timed_cases)
        return tuple(case for case in self.timed_cases if case.weight == largest)

    def is_timed(self, kind: Kind) -> bool:
        """Whether a kind is timed: to see it at all, or to see that nothing is gained, which a few tasks show."""
        gains = kind.expect is Expect.HARMLESS and not self.device.emulated and self.card.name in VARIED
        return kind.shows == "in timed calls" or gains

    def verdicts(self, kind: Kind, made: Sequence[Candidate]) -> list[Verdict]:
        """The harness's verdicts on candidates, after the checks that `kind` asks for, for it and those `alike`."""
        return self.bench(kind).evaluate_all(made, check_only=self.is_checked_only(kind), first_failure=True)

    def is_checked_only(self, kind: Kind) -> bool:
        """Whether small cases are enough."""
        return self.device.emulated and kind.shows == "at once"

    def bench(self, kind: Kind) -> Workbench:
        """The workbench for a kind."""
        if not self.is_timed(kind):
            return self._checking
        return self._refusing if kind.expect is Expect.REFUSED else self._timing

    def alike(self, kind: Kind) -> tuple[str, bool, bool, bool]:
        """The same for kinds whose candidates can be judged together."""
        where = f"{self.card.name} {self.precision}"
        return where, self.is_timed(kind), kind.expect is Expect.REFUSED, self.is_checked_only(kind)

    @cached_property
    def _timing(self) -> Workbench:
        return self._bench(TIMED_CALLS, cast(Device, self.device).protocol.pairs)

    @cached_property
    def _refusing(self) -> Workbench:
        # One process makes the calls that two would make between them: which of them is caught makes no difference.
        return self._bench(TIMED_CALLS, 1)

    @cached_property
    def _checking(self) -> Workbench:
        return self._bench(0, 1)

    def _bench(self, calls: int, pairs: int) -> Workbench:
        device = cast(Device, self.device)
        protocol = replace(device.protocol, pairs=pairs)
        if device.emulated:
            protocol = replace(protocol, work_limit=0.0, call_limit_s=CALL_LIMIT_S, times_count=False)
        own: dict[str, Any] = {} if self.builder is None else {"builder": self.builder}
        # What counts here is what is refused, so that no time is modelled.
        return Workbench(self.card, self.precision, device, calls=calls, protocol=protocol, modelled=False, **own)


def candidate(kind: Kind, subject: Subject) -> Candidate | NoCheat:
    """The candidate of a kind for a task."""
    code = region(kind, subject.card, subject.precision, subject.heaviest)
    if isinstance(code, NoCheat):
        return code
    command = kind.command or subject.device.default_command
    return Candidate(subject.card.name, subject.precision, code, command)


def plan(kinds: Sequence[Kind], subjects: Sequence[Subject], *, everywhere: bool) -> list[tuple[Kind, Subject]]:
    """What to try: kinds to which a task makes no difference on the VARIED tasks alone, unless `everywhere`.

    What is timed comes last: it waits for the device to be its own.
    """
    work = [
        (kind, subject)
        for subject in subjects
        for kind in kinds
        if everywhere or kind.everywhere or subject.card.name in VARIED
    ]
    return _timed_last(work)


def _timed_last(work: Sequence[tuple[Kind, Subject]]) -> list[tuple[Kind, Subject]]:
    return sorted(work, key=lambda one: one[1].is_timed(one[0]))


def sample(work: Sequence[tuple[Kind, Subject]], each: int) -> list[tuple[Kind, Subject]]:
    """Of every kind's candidates `each`, and all that is no cheat, which costs nothing.

    A kind's tasks differ where they can and its precisions take turns. What earlier kinds were tried on least comes
    first, so that all tasks and precisions have their share. The same work gives the same sample.
    """
    of_kind: dict[str, list[tuple[Kind, Subject]]] = {}
    taken: list[tuple[Kind, Subject]] = []
    for kind, subject in work:
        no_cheat = isinstance(candidate(kind, subject), NoCheat)
        (taken if no_cheat else of_kind.setdefault(kind.name, [])).append((kind, subject))
    used: Counter[tuple[str, Precision]] = Counter()
    for left in of_kind.values():
        mine: Counter[str] = Counter()  # of this kind: tasks and precisions

        def turn(place: int, left: list[tuple[Kind, Subject]] = left, mine: Counter[str] = mine) -> tuple[Any, ...]:
            name, precision = left[place][1].card.name, left[place][1].precision
            return mine[name], mine[precision], used[name, precision], content_hash(name, precision)

        for _ in range(min(each, len(left))):
            kind, subject = left.pop(min(range(len(left)), key=turn))
            taken.append((kind, subject))
            mine.update((subject.card.name, subject.precision))
            used[subject.card.name, subject.precision] += 1
    return _timed_last(taken)


# What `outcomes` does, on another machine.
Elsewhere = Callable[[Sequence[tuple[Kind, Subject]], Mapping[str, Outcome]], Sequence[tuple[Outcome, bool]]]


def run(
    work: Sequence[tuple[Kind, Subject]],
    known: Mapping[str, Outcome],
    jobs: int,
    report: Callable[[Outcome, bool], None],
    elsewhere: Elsewhere | None = None,
    stop: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Outcomes of the work, those `known` by their key taken over; `report` gets each, and whether it is new.

    `elsewhere` has the candidates judged by other machines, `jobs` batches at once; `stop` ends what they do if the
    audit is interrupted.

    Candidates of one task that are looked at in the same way are judged together, up to BATCH of them, so that a run
    which is stopped loses no more than `jobs` batches.
    """
    found: list[Outcome] = []
    pool: Executor
    # Threads wait for a GPU most of the time. Where a device only emulates, guards in one interpreter would take turns.
    if apart := elsewhere is None and jobs > 1 and any(subject.device.emulated for _, subject in work):
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(known,))
    else:
        pool = ThreadPoolExecutor(jobs)
    with pool:
        todo = [
            pool.submit(_outcomes_apart, some) if apart else pool.submit(elsewhere or outcomes, some, known)
            for some in _batches(work)
        ]
        try:
            for done in as_completed(todo):
                for outcome, new in done.result():
                    found.append(outcome)
                    report(outcome, new)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            pool.shutdown()
            raise
    return found


_known: dict[str, Outcome] = {}  # in a process of its own: the outcomes known when it started,
_subjects: dict[tuple[str, Precision], Subject] = {}  # and the subjects that it has seen, with their workbenches


def _begin(known: Mapping[str, Outcome]) -> None:
    _known.update(known)


def _outcomes_apart(work: Sequence[tuple[Kind, Subject]]) -> list[tuple[Outcome, bool]]:
    """What `outcomes` gives, in a process of its own."""
    seen = [(kind, _subjects.setdefault((subject.card.name, subject.precision), subject)) for kind, subject in work]
    return outcomes(seen, _known)


def _batches(work: Sequence[tuple[Kind, Subject]]) -> Iterator[list[tuple[Kind, Subject]]]:
    """The work, parted into what one judge is asked to do: a batch of each task, then the next of each, so that those
    at work do not all wait for what one task shares to be built. What is timed stays last."""
    alike: dict[tuple[str, bool, bool, bool], list[tuple[Kind, Subject]]] = {}
    for kind, subject in work:
        alike.setdefault(subject.alike(kind), []).append((kind, subject))
    batches: list[tuple[bool, int, list[tuple[Kind, Subject]]]] = []
    for some in alike.values():
        kind, subject = some[0]
        size = EMULATED_BATCH if subject.device.emulated else BATCH
        batches += [(subject.is_timed(kind), begin, some[begin : begin + size]) for begin in range(0, len(some), size)]
    for _, _, batch in sorted(batches, key=lambda one: one[:2]):
        yield batch


def outcomes(work: Sequence[tuple[Kind, Subject]], known: Mapping[str, Outcome]) -> list[tuple[Outcome, bool]]:
    """The outcomes of kinds that are alike for one subject, and whether each is new."""
    found: list[tuple[Outcome, bool]] = []
    todo: list[tuple[Kind, str, Candidate]] = []
    for kind, subject in work:
        made = candidate(kind, subject)
        if isinstance(made, NoCheat):
            where = (kind.name, subject.card.name, subject.precision, subject.device.name)
            found.append((Outcome(*where, key="", result=Result.NO_CHEAT, detail=made.reason), False))
            continue
        key = content_hash(kind.name, kind.shows, str(subject.is_timed(kind)), subject.bench(kind).key(made))
        if key in known:
            found.append((known[key], False))
        else:
            todo.append((kind, key, made))
    if not todo:
        return found
    subject, started = work[0][1], monotonic()
    bench = subject.bench(todo[0][0])
    with ExitStack() as block:
        # Thousands of builds of some megabytes, that nobody asks for again.
        for _, _, made in todo:
            block.callback(bench.forget, made)
        verdicts = subject.verdicts(todo[0][0], [made for _, _, made in todo])
    each_s = (monotonic() - started) / len(todo)
    for (kind, key, _), verdict in zip(todo, verdicts, strict=True):
        found.append((outcome(kind, subject.precision, subject.card.name, key, verdict, each_s), True))
    return found


class Log:
    """Outcomes on disk, one JSON object per line; existing ones are read first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = {found.key: found for found in self._read()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+", encoding="utf-8")
            text = path.read_text(encoding="utf-8")
            self._file.truncate(len(text[: text.rfind("\n") + 1].encode()))  # a line that was cut short by a kill
        except OSError as error:
            raise unwritable(path, error, "Give another file with --out.") from error

    def add(self, result: Outcome) -> None:
        """Write one outcome down."""
        self._file.write(json.dumps(to_json(result)) + "\n")
        self._file.flush()

    def _read(self) -> Iterator[Outcome]:
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path} cannot be read: {error}.", "Give another file with --out.") from error
        for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
            try:
                yield from_json(Outcome, json.loads(line))
            except ValueError as error:
                fix = "Remove the line, or give another file with --out."
                raise UsageError(f"Line {number} of {self.path} is no outcome of an audit.", fix) from error
