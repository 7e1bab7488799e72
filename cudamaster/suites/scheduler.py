"""Many searches at once: who runs when and on which device, under one budget.

Each task is a search of its own in a thread of its own: models answer and compilers work while another task measures.
A device keeps measuring processes apart by itself. A task stays on the device that it began on, since its candidates
are compared with a baseline that was measured there; of several the one with the fewest tasks gets the next.

What a search needs comes from outside, as a function; results and errors of all tasks go into suite.json.
"""

from __future__ import annotations

import platform
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from datetime import UTC, datetime
from pathlib import Path

import cudamaster
from cudamaster.core.errors import BudgetSpent, CudaMasterError, RunFolderError
from cudamaster.core.values import Precision
from cudamaster.runs.budget import Budget, Spent
from cudamaster.runs.record import Settings, read_record
from cudamaster.runs.spending import spent
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.suites.folder import FORMAT, Entry, State, Suite, SuiteFolder, SuiteSession
from cudamaster.suites.progress import Board, Running, Watch, left_s, usage

_SAVED_EVERY_S = 10.0
_LOOKED_AT_EVERY_S = 0.2
_GRACE_S = 5.0  # for tasks to end by themselves after an interruption

# Searches for an entry in its run folder on a unit, fresh or resumed; raises what `optimization.optimize` raises.
Search = Callable[[Entry, Path, str, Observer, Budget], Result]


def new(settings: Settings, tasks: Sequence[tuple[str, Precision]], cards: Mapping[str, str] | None = None) -> Suite:
    """A suite that has not begun. `cards` has the paths of cards of a user's own tasks, by the tasks' names."""
    paths = cards or {}
    return Suite(
        format=FORMAT,
        started=_now(),
        versions={"cudamaster": cudamaster.__version__, "python": platform.python_version()},
        settings=settings,
        entries=tuple(Entry(task, precision, card=paths.get(task, "")) for task, precision in tasks),
    )


def carried_on(suite: Suite, settings: Settings) -> Suite:
    """The suite with settings of more rounds: what is done waits again, but where the search ended by itself."""
    more = settings.rounds > suite.settings.rounds
    entries = tuple(
        changed(entry, state=State.WAITING) if more and entry.state is State.DONE and entry.note is None else entry
        for entry in suite.entries
    )
    return changed(suite, settings=settings, entries=entries)


def spent_before(path: Path, suite: Suite) -> Spent:
    """What earlier sessions of a suite spent; runs overlap, so that minutes are the suite's own.

    A run folder that is damaged counts for nothing here; its task fails for that when its turn comes.
    """
    total = Spent(seconds=sum(session.seconds for session in suite.sessions))
    for entry in suite.entries:
        total += changed(_spent_by(path / entry.name), seconds=0.0)
    return total


def run(
    folder: SuiteFolder,
    suite: Suite,
    search: Search,
    budget: Budget,
    units: Sequence[str],
    jobs: int,
    show: Callable[[Board], None] = lambda board: None,
) -> Suite:
    """Carry a suite to its end, `jobs` tasks at once, or until the budget is spent; `show` often gets how it stands.

    What is done is not done again, what failed is tried again. An error of a task is kept with its entry and stops no
    other. KeyboardInterrupt stops all of them, and is raised when what they did is written down.
    """
    running = _Running(folder, suite, search, budget, units, jobs)
    running.save()
    # Their own word for it: after a join that was interrupted Python takes a thread that runs for one that has ended.
    ends = [threading.Event() for _ in range(jobs)]
    workers = [threading.Thread(target=running.work, args=(end,), daemon=True) for end in ends]
    saved = time.monotonic()
    try:
        for worker in workers:
            worker.start()
        while busy := [end for end in ends if not end.is_set()]:
            show(running.board())
            busy[0].wait(_LOOKED_AT_EVERY_S)
            if time.monotonic() - saved > _SAVED_EVERY_S:
                running.save()
                saved = time.monotonic()
        show(running.board())
        unfinished = running.unfinished
        return running.save(ended=budget.why_stopped or unfinished if unfinished else "finished")
    except BaseException as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
        budget.stop(f"The suite was {why}.")
        until = time.monotonic() + _GRACE_S
        for worker, end in zip(workers, ends, strict=True):
            if worker.ident is not None:
                end.wait(max(0.0, until - time.monotonic()))
        running.abandon(why)
        running.save(ended=why)
        raise


class _Running:
    """A suite while it runs. Threads share it under its lock; suite.json is written by the one that started them."""

    def __init__(
        self, folder: SuiteFolder, suite: Suite, search: Search, budget: Budget, units: Sequence[str], jobs: int
    ) -> None:
        self._folder = folder
        self._search = search
        self._budget = budget
        self._units = units
        self._jobs = jobs
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._views: dict[str, Running] = {}
        self._again: list[str] = []
        # Of each entry by its name: seconds of earlier sessions, steps that are done, and seconds that they took.
        self._earlier = {entry.name: _spent_by(folder.path / entry.name).seconds for entry in suite.entries}
        self._steps = {entry.name: entry.rounds + 1 for entry in suite.entries if entry.state is State.DONE}
        self._seconds = dict(self._earlier)
        entries = tuple(
            entry if entry.state is State.DONE else changed(entry, state=State.WAITING, error=None, trace=None)
            for entry in suite.entries
        )
        session = SuiteSession(_now(), budget.limits, jobs)
        self._suite = changed(suite, entries=entries, sessions=(*suite.sessions, session))

    @property
    def unfinished(self) -> str | None:
        """Why a task did not come to its end, where one is left that did not, an error apart."""
        left = [entry for entry in self._suite.entries if entry.state in (State.WAITING, State.STOPPED)]
        return (left[0].note or f"{left[0].name} was stopped") if left else None

    def work(self, end: threading.Event) -> None:
        """What one thread does: take the next task until there is none or nothing more may begin; `end` is set then."""
        try:
            self._work()
        finally:
            end.set()

    def _work(self) -> None:
        # A terminal's Ctrl-C, and what a job queue sends, can go to every process: a compiler that it ended would look
        # like code that does not compile. What a thread starts inherits this.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        while self._budget.why_stopped is None and (view := self._next()) is not None:
            ended = self._searched(view)
            with self._lock:
                if self._views.pop(ended.name, None) is None:
                    return  # it was abandoned
                self._steps[ended.name], self._seconds[ended.name] = view.steps, ended.seconds
                self._set(ended)

    def _next(self) -> Running | None:
        """The next task that waits, on a device."""
        with self._lock:
            waiting = next((entry for entry in self._suite.entries if entry.state is State.WAITING), None)
            if waiting is None:
                return None
            unit = waiting.unit
            if unit is None or unit not in self._units:
                tasks = Counter(view.entry.unit for view in self._views.values())
                unit = min(self._units, key=lambda unit: tasks[unit])
            entry = changed(waiting, state=State.RUNNING, unit=unit)
            self._views[entry.name] = view = Running(
                entry,
                time.monotonic(),
                score=entry.score,
                emulated=entry.emulated,
                modelled=entry.modelled,
                interval=entry.interval,
            )
            self._set(entry)
            return view

    def _searched(self, view: Running) -> Entry:
        """The entry after its search."""
        entry = view.entry
        assert entry.unit is not None
        result: Result | None = None
        note = error = trace = None
        try:
            result = self._search(
                entry, self._folder.path / entry.name, entry.unit, Watch(view, self._again), self._budget
            )
            state, note = State.STOPPED if result.stopped else State.DONE, result.note
        except BudgetSpent as stopped:
            state, note = State.STOPPED, stopped.reason
        except CudaMasterError as ours:
            state, error = State.FAILED, str(ours)
        except BaseException as any_other:  # a thread that ended here would take the turns of other tasks with it
            state, error, trace = State.FAILED, f"{type(any_other).__name__}: {any_other}", traceback.format_exc()
        ended = changed(self._so_far(view), state=state, note=note, error=error, trace=trace)
        return changed(ended, score=result.score, rounds=len(result.rounds)) if result else ended

    def abandon(self, why: str) -> None:
        """Give up what still runs, within its step, as a kill would."""
        with self._lock:
            for view in self._views.values():
                self._set(changed(self._so_far(view), state=State.STOPPED, note=why))
            self._views.clear()

    def _so_far(self, view: Running) -> Entry:
        """The entry with what its task came to until now, in earlier sessions where this one did not get as far."""
        return changed(
            view.entry,
            score=view.score,
            emulated=view.emulated,
            modelled=view.modelled,
            interval=view.interval,
            rounds=max(view.entry.rounds, view.steps - 1),
            seconds=round(self._earlier[view.entry.name] + time.monotonic() - view.began, 1),
        )

    def _set(self, entry: Entry) -> None:
        """Put an entry in the place of the one with its name; the lock is held."""
        entries = tuple(entry if old.name == entry.name else old for old in self._suite.entries)
        self._suite = changed(self._suite, entries=entries)

    def save(self, ended: str | None = None) -> Suite:
        """Write suite.json as it stands now."""
        with self._lock:
            *earlier, session = self._suite.sessions
            session = changed(
                session,
                seconds=round(time.monotonic() - self._began, 3),
                use=usage(self._budget.holds, self._units),
                ended=ended,
            )
            self._suite = suite = changed(self._suite, sessions=(*earlier, session))
        self._folder.save(suite)
        return suite

    def board(self) -> Board:
        """How it stands now."""
        now = time.monotonic()
        with self._lock:
            entries, views = self._suite.entries, tuple(changed(view) for view in self._views.values())
            steps = {**self._steps, **{view.entry.name: view.steps for view in views}}
            live = {view.entry.name: self._earlier[view.entry.name] + now - view.began for view in views}
            seconds = {**self._seconds, **live}
        return Board(
            entries=entries,
            running=views,
            spent=self._budget.spent,
            limits=self._budget.limits,
            use=usage(self._budget.holds, self._units),
            session_s=now - self._began,
            left_s=left_s(entries, steps, seconds, steps_each=self._suite.settings.rounds + 1, jobs=self._jobs),
            again=tuple(self._again),
        )


def _spent_by(run: Path) -> Spent:
    try:
        return spent(read_record(run)) if (run / "run.json").is_file() else Spent()
    except RunFolderError:
        return Spent()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
