"""More rounds or tries for an existing run: what may change, and what stays.

A continued run is replayed like any resumed one, and continues where its record ends. So everything that the record
depends on stays as it was, and finished rounds keep the number of tries that they had.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import UTC, datetime
from pathlib import Path

from cudamaster.core.errors import UsageError
from cudamaster.runs import reading
from cudamaster.runs.record import Settings, Stage, read_manifest, read_record
from cudamaster.strategies import registry


@dataclass(frozen=True)
class More:
    """What a continued run gets; None for what it keeps."""

    rounds: int | None = None
    debug_tries: int | None = None

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self.rounds is not None or self.debug_tries is not None


def settings_with(run: Path, more: More) -> Settings:
    """The settings of a run that continues with `more`; the same object if it already has that.

    Raises UsageError for less than what was done, for tries if the run's strategy has none, and if more would change
    nothing: because the search ended by itself, or replays a record.
    """
    settings = read_manifest(run).settings
    wanted = raised(settings, more, str(run))
    if wanted == settings:
        return settings
    if settings.replay is not None:
        raise UsageError(f"{run} is a replay, which has the rounds of its record.", "Continue the recorded run.")
    note = ended_by_itself(run)
    if note is not None:
        raise UsageError(
            f"{run} ended by itself, and more rounds would ask nothing new: {note}",
            "Start a fresh run, with another model or strategy.",
        )
    ended = _ended(run)
    if wanted.rounds == ended:
        raise UsageError(f"All {ended} rounds of {run} are over; they keep their tries.", f"Add -R {ended + 2}, say.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    stage = Stage(now, ended, settings.rounds, settings.debug_tries)
    return changed(wanted, earlier=(*settings.earlier, stage))


def as_in_suite(run: Path, settings: Settings) -> More:
    """What a task's run gets to match its suite: nothing if it has more, or if its search is over."""
    record, own = read_record(run), read_manifest(run).settings
    if own.replay is not None or ended_by_itself(run) is not None:
        return More()
    rounds, tries = max(own.rounds, settings.rounds), max(own.debug_tries, settings.debug_tries)
    if rounds == own.rounds and (record.finished or tries == own.debug_tries or _ended(run) == rounds):
        return More()
    return More(rounds, tries if tries > own.debug_tries else None)


def _ended(run: Path) -> int:
    """How many rounds of a run are over."""
    return sum(done.status is not None for done in reading.read(run).rounds)


def raised(settings: Settings, more: More, of: str) -> Settings:
    """The settings with more rounds and tries. Raises UsageError for fewer, and for tries if the strategy has none."""
    tries = settings.debug_tries
    if more.debug_tries is not None:
        tries = registry.debug_tries_of(registry.find(settings.strategy), more.debug_tries)
    rounds = settings.rounds if more.rounds is None else more.rounds
    for option, then, now, what in (
        ("-R", settings.rounds, rounds, "rounds"),
        ("-D", settings.debug_tries, tries, "debug tries"),
    ):
        if now < then:
            raise UsageError(
                f"{option} {now} is fewer than the {then} {what} that {of} has, and what was done stays.",
                f"Give {then} or more, or leave {option} out.",
            )
    return changed(settings, rounds=rounds, debug_tries=tries)


def ended_by_itself(run: Path) -> str | None:
    """Why a finished search ended before its last round; None if it went through all of them or is not finished."""
    summary = read_record(run).summary
    note = summary.get("note") if summary is not None else None
    return note if isinstance(note, str) else None
