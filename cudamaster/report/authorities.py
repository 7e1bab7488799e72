"""A saved measurement of vendors' libraries (`cudamaster vendor --save FILE`) to what a report shows of it."""

from __future__ import annotations

from pathlib import Path

from cudamaster.report.data import Authority, AuthorityCase
from cudamaster.values import Status
from cudamaster.vendor import VendorRecord, VendorReport, read

FILE_NAME = "vendor.json"  # what is looked for in folders; a file that is named may have any name


def load(path: Path) -> tuple[Authority, ...]:
    """The authorities of a saved measurement, emulated ones left out. Raises UsageError for what is none."""
    saved = read(path)
    if saved.emulated:
        return ()
    return tuple(_authority(saved, record) for record in saved.records)


def _authority(saved: VendorReport, record: VendorRecord) -> Authority:
    library, ours = record.vendor, record.ours
    right = ours is not None and ours.status is Status.CORRECT
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
        ours=ours.speed if ours and right else None,
        duel=record.duel.speed if record.duel and right else None,
        kernel=record.kernel,
    )


def _cases(record: VendorRecord) -> tuple[AuthorityCase, ...]:
    if record.vendor is None:
        return ()
    ours = {case.label: case for case in record.ours.cases} if record.ours else {}
    told = []
    for case in record.vendor.cases:
        own = ours.get(case.label)
        told.append(
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
    return tuple(told)
