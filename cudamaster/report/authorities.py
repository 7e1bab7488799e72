"""A saved measurement of vendors' libraries (`cudamaster vendor --save FILE`) to what a report shows of it."""

from __future__ import annotations

from pathlib import Path

from cudamaster.core.values import Status
from cudamaster.report.data import Authority, AuthorityCase
from cudamaster.vendor.comparison import Contest, VendorRecord, VendorReport, read

FILE_NAME = "vendor.json"  # what is looked for in folders; a file that is named may have any name


def load(path: Path) -> tuple[Authority, ...]:
    """The vendor contests of a saved measurement, without emulated ones. Raises UsageError if it is not one."""
    saved = read(path)
    if saved.emulated:
        return ()
    return tuple(_authority(saved, record) for record in saved.records)


def _authority(saved: VendorReport, record: VendorRecord) -> Authority:
    library, ours = record.vendor, _right(record.ours)
    return Authority(
        task=record.task,
        precision=record.precision,
        library=f"{record.library} {record.version}".strip(),
        hardware=saved.about.get("device", "unknown"),
        status=library.status if library else None,
        note=record.skipped or (library.detail if library else ""),
        score=library.score if library else None,
        speed=library.speed if library else None,
        cases=_cases(record),
        ours=ours.speed if ours else None,
        duel=record.duel.speed if record.duel and ours else None,
        kernel=record.kernel,
    )


def _right(contest: Contest | None) -> Contest | None:
    """A contest whose times count: sizes that were timed before one failed are times of what is wrong."""
    return contest if contest is not None and contest.status is Status.CORRECT else None


def _cases(record: VendorRecord) -> tuple[AuthorityCase, ...]:
    library, kernel = _right(record.vendor), _right(record.ours)
    if library is None:
        return ()
    ours = {case.label: case for case in kernel.cases} if kernel else {}
    found = []
    for case in library.cases:
        own = ours.get(case.label)
        found.append(
            AuthorityCase(
                label=case.label,
                weight=case.weight,
                baseline_us=case.against_us,
                library_us=case.own_us,
                floor_us=case.floor_us,
                speedup=case.speed.speedup if case.speed else None,
                interval=case.speed.interval if case.speed else None,
                ours_us=own.own_us if own else None,
                ours_speedup=own.speed.speedup if own and own.speed else None,
            )
        )
    return tuple(found)
