"""Verdicts and findings on the kernels of a family, each evaluated once and kept in a file: see strategies.py."""

from __future__ import annotations

import json
from pathlib import Path

from strategies_families import Family

from cudamaster.core.records import from_json, to_json
from cudamaster.core.values import Candidate, Findings, Precision, Verdict
from cudamaster.devices.choose import choose
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench


class KeptBench:
    """The workbench of a family's task, with one small timed case. What was judged once is read from `file`.

    The modelled time of a kernel is the same every time, and the same seed gives the same inputs, so a search that asks
    again would get the same. On a GPU a second evaluation would differ by its noise; there a kernel is measured once
    too, and all strategies see that one measurement.
    """

    def __init__(self, family: Family, device: str, file: Path) -> None:
        CpuDevice.has_debug_build = False  # its search for races takes half of the time, and these kernels have none
        fields = cards.load(family.task).model_dump()
        small = {"sweep": [family.sweep], "verify": list(family.verify)}
        held_out = {"held_out": [family.held_out], "held_out_large": [family.held_out]}
        self.card = cards.TaskCard.model_validate({**fields, **small, **held_out})
        self.precision = Precision.FP32
        calls = 1 if device == "cpu" else None  # the host's times of the CPU device do not count
        self._inner = Workbench(self.card, self.precision, choose(device), seed=1, calls=calls, brief_baseline=True)
        self.baseline = self._inner.baseline
        self.hardware = self._inner.hardware
        self._file = file
        self._kept: dict[str, list[object]] = json.loads(file.read_text()) if file.exists() else {}

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The verdict, with findings for a correct candidate kept beside it."""
        if candidate.id not in self._kept:
            verdict = self._inner.evaluate(candidate)
            found = self._inner.findings(candidate, verdict) if verdict.correct else None
            self._kept[candidate.id] = [to_json(verdict), to_json(found) if found else None]
            self._file.write_text(json.dumps(self._kept))
        return from_json(Verdict, self._kept[candidate.id][0])

    def measure_again(self, candidate: Candidate) -> Verdict:
        """The same verdict."""
        return self.evaluate(candidate)

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """What was kept."""
        return from_json(Findings, self._kept[candidate.id][1])

    def candidate(self, code: str) -> Candidate:
        """A kernel with the default command."""
        return Candidate(self.card.name, self.precision, code, self.baseline.command)
