"""What `cudamaster suite` prints: what it is going to do, how far it is, and each task's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudamaster.cli.output import about_times, ourselves, print_to_copy, score_column, speed, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cudamaster.runs.budget import Budget, Limits
    from cudamaster.suites.folder import Entry, Suite, UnitUse
    from cudamaster.suites.progress import Board, Running

_STYLES = {"done": "green", "failed": "red", "stopped": "yellow", "waiting": "yellow", "running": "cyan"}


def introduce(out: Console, plan: Suite, path: Path, places: Sequence[str], jobs: int, limits: Limits) -> None:
    """What is searched for, by which models, on which devices and within which budget."""
    from cudamaster.strategies import registry

    settings = plan.settings
    tasks = f"{len(plan.entries)} task{'s' * (len(plan.entries) != 1)}"
    what = f"{tasks}, {registry.described(settings)}, {jobs} at once"
    if settings.replay is not None:
        what = f"{tasks} from the records in {settings.replay.record}, {jobs} at once"
    out.print(what, style="bold")
    out.print(f"Models: {', '.join(sorted(set(settings.models.values())))}. Devices: {', '.join(places)}.")
    if all(place == "cpu" or place.startswith("cpu of ") for place in places):
        out.print("This is the CPU device: results are checked, times are modelled, and no GPU measures them.")
    given = {"dollars": limits.dollars, "tokens": limits.tokens, "minutes": limits.minutes,
             "GPU seconds": limits.gpu_seconds}  # fmt: skip
    if any(given.values()):
        out.print("Budget: " + ", ".join(f"{limit:g} {unit}" for unit, limit in given.items() if limit is not None))
    print_to_copy(out, f"Suite folder: {path}\n")


@contextmanager
def shown_while_running(out: Console, *, hidden: bool) -> Iterator[Callable[[Board], None]]:
    """Shows how far a suite is: all the time on a terminal, elsewhere by a line for each task that ends."""
    if hidden:
        yield lambda board: None
    elif out.is_terminal:
        from rich.live import Live

        with Live(console=out, refresh_per_second=4, transient=True) as live:
            yield _AsTheyEnd(out, lambda board: live.update(_standing(board)))
    else:
        yield _AsTheyEnd(out, lambda board: None)


class _AsTheyEnd:
    """Prints a line for each retry of a call and each task that ended since the last time, then shows the rest."""

    def __init__(self, out: Console, then: Callable[[Board], None]) -> None:
        self._out = out
        self._then = then
        self._shown_before: set[str] | None = None
        self._again = 0

    def __call__(self, board: Board) -> None:
        ended = {entry.name: entry for entry in board.entries if entry.state.value in ("done", "stopped", "failed")}
        if self._shown_before is None:
            self._shown_before = set(ended)  # in earlier sessions
        for line in board.again[self._again :]:
            self._out.print(line)
        self._again = len(board.again)
        for name in ended.keys() - self._shown_before:
            entry = ended[name]
            why = f": {entry.error or entry.note}" if entry.error or entry.note else ""
            rounds = f"{entry.rounds} round{'s' * (entry.rounds != 1)}"
            self._out.print(_state(entry), f" {name}, P = {speed(entry.score, mark=entry.mark)}{_reach(entry)}, "
                            f"{rounds}, {_minutes(entry.seconds)}{why} [{_counted(board)}]",
                            sep="")  # fmt: skip
        self._shown_before |= ended.keys()
        self._then(board)


def _standing(board: Board) -> Any:
    """The state of a running suite: what is done, what each task waits for, what is spent and left."""
    from rich.console import Group

    scores = [(entry.score, entry.name, entry.mark) for entry in board.entries if entry.score is not None]
    scores += [(view.score, view.entry.name, view.mark) for view in board.running if view.score is not None]
    best = max(scores, default=None)
    rows: list[list[str | Text]] = [
        [view.entry.name, f"{view.round}/{view.rounds}" if view.rounds else "-", view.doing,
         speed(view.score, mark=view.mark) + _reach(view), view.entry.unit or ""]
        for view in board.running
    ]  # fmt: skip
    spent = board.spent
    lines = [
        _counted(board) + (f", best P = {speed(best[0], mark=best[2])} ({best[1]})" if best else ""),
        f"{_money(board.spent.dollars, spent.unpriced)}, {spent.tokens:,} tokens in {spent.calls} calls, "
        f"{_minutes(board.session_s)} so far, "
        + (f"about {_minutes(board.left_s)} left" if board.left_s is not None else "time left not known yet"),
        *_used(board.use, board.session_s),
    ]
    return Group(table(["task", "round", "doing", "best P", "on"], rows, right=["round", "best P"]), *lines)


def _reach(of: Entry | Running) -> str:
    """The interval of a modelled P."""
    return "" if of.interval is None else f" [{of.interval.low:.2f} to {of.interval.high:.2f}]"


def _score(entry: Entry) -> float:
    return entry.score or 0.0


def _counted(board: Board) -> str:
    from cudamaster.suites.folder import State

    failed = f", {board.count(State.FAILED)} failed" if board.count(State.FAILED) else ""
    return f"{board.count(State.DONE)} of {len(board.entries)} done, {len(board.running)} running{failed}"


def _money(dollars: float, unpriced: int) -> str:
    return f"${dollars:.4f}" + (f" and {unpriced} calls of unknown price" if unpriced else "")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _used(use: Sequence[UnitUse], session_s: float) -> list[str]:
    """The share of the time in which each device was held and was measuring."""
    return [
        f"{one.unit}: measuring {one.measuring_s / session_s:.0%} of the time, held {one.held_s / session_s:.0%}"
        for one in use
        if session_s > 0 and one.unit != "record"
    ]


def _state(entry: Entry) -> Text:
    from rich.text import Text

    return Text(entry.state.value, style=_STYLES[entry.state.value])


def conclude(out: Console, ended: Suite, path: Path, budget: Budget, nothing_to_do: bool) -> None:
    """The tables of `print_suite`, with what was spent."""
    spent = budget.spent
    out.print()
    print_suite(
        out,
        ended,
        path,
        spent=f"Spent in all: {_money(spent.dollars, spent.unpriced)}, {spent.tokens:,} tokens in {spent.calls} calls, "
        f"{_minutes(spent.seconds)}, device held {spent.gpu_seconds:.0f} s",
        why_stopped=budget.why_stopped,
        nothing_to_do=nothing_to_do,
    )


def print_suite(
    out: Console,
    suite: Suite,
    path: Path,
    *,
    spent: str = "",
    why_stopped: str | None = None,
    nothing_to_do: bool = False,
) -> None:
    """Each task's result so far, and what to do next."""
    from cudamaster.suites.folder import State

    marks = sorted({entry.mark for entry in suite.entries if entry.mark})
    p = score_column(" or ".join(marks))
    rows: list[list[str | Text]] = []
    for entry in suite.entries:
        score = "-" if entry.score is None else f"{entry.score:.2f}{_reach(entry)}"
        rows.append([entry.task, entry.precision.value, _state(entry), score, str(entry.rounds),
                     f"{entry.seconds / 60:.1f}"])  # fmt: skip
    out.print(table(["task", "precision", "status", p, "rounds", "minutes"], rows, right=[p, "rounds", "minutes"]))
    failed = [entry for entry in suite.entries if entry.state is State.FAILED]
    for entry in failed:
        out.print(f"{entry.name} failed: {entry.error}", style="red")
        if entry.trace:
            out.print(f"  This is a fault of the program; its traceback is in {path / 'suite.json'}.")
    for line in [spent] * bool(spent) + _used(suite.use, sum(session.seconds for session in suite.sessions)):
        out.print(line)
    if any(entry.emulated for entry in suite.entries):
        for about in dict.fromkeys(about_times(entry.modelled) for entry in suite.entries if entry.score is not None):
            out.print(about)
    left = [entry for entry in suite.entries if entry.state in (State.WAITING, State.STOPPED)]
    if left:
        # The end can also be that of the record that a task replays.
        why = why_stopped or next((entry.note for entry in left if entry.note), "")
        rest = "1 task is not finished." if len(left) == 1 else f"{len(left)} tasks are not finished."
        out.print(f"Stopped: {why} {rest}" if why else rest)
    if left or failed:
        print_to_copy(out, f"Next: {ourselves('suite', '--resume', str(path))}")
    else:
        best = max(suite.entries, key=_score)
        if nothing_to_do:
            more = ourselves("suite", "--resume", str(path), "-R", str(suite.settings.rounds + 2))
            print_to_copy(out, "This suite is finished; nothing was asked or measured now."
                               + (f" To continue it: {more}" if suite.settings.replay is None else ""))  # fmt: skip
        shown = ourselves("show", str(path / best.name))
        print_to_copy(out, f"Next: {ourselves('report', str(path))}, or {shown}")
