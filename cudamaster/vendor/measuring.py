"""A whole measurement of vendors' libraries: what is measured, in which order, and what an earlier one already has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision
from cudamaster.devices.protocol import Device
from cudamaster.tasks import cards
from cudamaster.vendor import comparison
from cudamaster.vendor.comparison import FORMAT, Ready, VendorFile, VendorRecord, VendorReport
from cudamaster.workbench import floors
from cudamaster.workbench.evaluation import Workbench

Kernels = Mapping[tuple[str, Precision], Candidate]


def files(tasks: Sequence[str], precisions: Sequence[Precision], folder: Path | None) -> list[VendorFile]:
    """The vendor files of these tasks, by default of all. Raises UsageError if a task that is named has none."""

    def of(names: Sequence[str], precisions: Sequence[Precision]) -> list[VendorFile]:
        return comparison.files([cards.load(name) for name in names], precisions, folder)

    found = of(tasks or cards.names(), precisions)
    without = [name for name in tasks if not any(file.card.name == name for file in found)]
    if without or not found:
        there = sorted({file.card.name for file in of(cards.names(), list(BENCHMARK_PRECISIONS))})
        raise UsageError(
            f"There is no vendor file for {', '.join(without) or 'any of these'}.",
            f"There are some for: {', '.join(there) or 'no task'}.",
        )
    return found


class Measurement:
    """Libraries, and our kernels beside them, on one device."""

    def __init__(
        self,
        files: Sequence[VendorFile],
        device: Device,
        kernels: Kernels,
        *,
        seed: int | None,
        calls: int | None,
        check_only: bool,
    ) -> None:
        """`kernels` are ours, to be measured too unless libraries are only checked."""
        self._files = files
        self._device = device
        self._kernels = {} if check_only else kernels
        self._check_only = check_only
        # A library's kernels cannot be counted, so nothing is modelled.
        self._benches = [Workbench(f.card, f.precision, device, seed=seed, calls=calls, modelled=False) for f in files]
        self._ready: list[Ready] = []
        self._records: list[VendorRecord] = []
        self._about = {
            "device": device.hardware().name,
            **device.hardware().figures,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "timed calls per case": str(calls or device.protocol.calls),
        }

    @property
    def report(self) -> VendorReport:
        """What was measured so far."""
        return VendorReport(FORMAT, self._device.emulated, self._about, tuple(self._records))

    def build(self) -> None:
        """Build all before the first runs: compilers running meanwhile would disturb the times."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = pool.map(comparison.prepare, self._files, self._benches, repeat(self._device))
            self._ready = list(made)

    def run(
        self, save: Path | None, done: Callable[[VendorRecord], None], say: Callable[[str], None]
    ) -> Sequence[VendorRecord]:
        """Measure what was built. `done` gets each record, `say` gets a line about what takes long.

        What the file `save` holds of the same device, library and kernel is not measured again. The file is written
        after every record: a run that is stopped keeps what it has, and what was there before.
        """
        if any(one.worker is not None for one in self._ready) and not self._check_only:
            floors.limits(self._device, say=say)
        before = () if save is None else comparison.saved(save, self._about)
        known = {(one.key, one.kernel): one for one in before if one.key and one.vendor is not None}
        measured: dict[tuple[str, Precision], VendorRecord] = {}  # in this run, and so what stands beside each other
        for made, bench in zip(self._ready, self._benches, strict=True):
            task = (made.file.card.name, made.file.precision)
            best = self._kernels.get(task)
            record = known.get((made.key(bench, check_only=self._check_only), best.id if best else None))
            if record is None:
                record = comparison.measure(made, bench, best, beside=measured.get(task), check_only=self._check_only)
                measured[task] = record
            self._records.append(record)
            if save is not None:
                ours = {(one.task, one.precision, one.library) for one in self._records}
                others = [one for one in before if (one.task, one.precision, one.library) not in ours]
                comparison.write(save, replace(self.report, records=(*others, *self._records)))
            done(self._records[-1])
        return self._records
