"""Judges the playbook's kernels now, and keeps each verdict the moment it is there.

A file of JSON lines holds them, one kernel a line. After a kill the same command goes on: what is in the file is not
judged again, if task card, GPU and harness version are still the same. A line that a kill cut off is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from cudamaster.agents.asking import Misfit
from cudamaster.agents.replies import code_block
from cudamaster.core import version
from cudamaster.core.errors import BaselineError, CardError, UsageError, nearest, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.records import RecordError
from cudamaster.core.values import Candidate, Hardware, Precision, Verdict
from cudamaster.devices.protocol import Device
from cudamaster.models.playbook import NAME, Step, merged
from cudamaster.runs.playbooks import playbook
from cudamaster.strategies.large_gains import JumpRule, agreed
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of, harness_of
from cudamaster.workbench.evaluation import Workbench

FILE = "judged.jsonl"
Told = Callable[[str, int, int], None]  # what is judged now, how many are done, and of how many


@dataclass
class Judged:
    """The kernels that were judged, on which device, and what could not be judged and why."""

    kernels: list[JudgedKernel] = field(default_factory=list)
    hardware: Hardware | None = None
    unread: list[str] = field(default_factory=list)


def chosen(tasks: Sequence[str], precisions: Sequence[Precision]) -> list[tuple[TaskCard, Precision]]:
    """The tasks of the benchmark and of one's own that match the globs (without any: the fifty), in these precisions.

    Raises UsageError for a glob that matches none, and CardError for a card that cannot be used.
    """
    known = [*cards.names(), *cards.own_names()]
    for pattern in tasks:
        if not any(fnmatch(name, pattern) for name in known):
            fix = nearest(pattern, known, "`cudamaster tasks` lists them.")
            raise UsageError(f"No task matches {pattern!r}.", fix)
    names = [name for name in known if any(fnmatch(name, each) for each in tasks)] if tasks else cards.names()
    return [(card, each) for card in map(cards.load, names) for each in card.among(precisions)]


def judge(
    pairs: Sequence[tuple[TaskCard, Precision]],
    device: Device,
    folder: Path,
    *,
    told: Told = lambda what, done, of: None,
) -> Judged:
    """Judge baseline and steps of each task, and keep the verdicts in `folder`. A task that fails is told, not raised.

    A measured P that would be a jump in a search (`large_gains.JumpRule`) is measured again, and the lower one counts.
    Raises DeviceError where the device fails, RunFolderError where another process works on the folder.
    """
    result = Judged()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    harness = harness_of(version.program())
    with _kept(folder) as log:
        work = []
        for card, precision in pairs:
            try:
                bench = Workbench(card, precision, device, brief_baseline=True)
                steps = [_candidate(bench, step) for step in playbook().steps(card.name, precision.value)]
            except (CardError, UsageError) as error:
                result.unread.append(f"{card.name} ({precision}): {error.reason}")
                continue
            work += [(bench, bench.baseline, ""), *((bench, candidate, idea) for candidate, idea in steps)]
            result.hardware = result.hardware or bench.hardware
        failed: set[tuple[str, Precision]] = set()
        gpu = "" if result.hardware is None else gpu_of(result.hardware)
        for done, (bench, candidate, idea) in enumerate(work):
            card, which = bench.card, (bench.card.name, bench.precision)
            before = log.find(candidate, card.hash, gpu, harness)
            if before is None and which not in failed:
                told(f"{card.name} ({bench.precision}): {idea or 'the baseline'}", done, len(work))
                try:
                    verdict = _verdict(bench, candidate)
                except BaselineError as error:
                    failed.add(which)
                    result.unread.append(f"{card.name} ({bench.precision}): {error.reason}")
                    continue
                about = Provenance(
                    suite=card.suite,
                    category=card.category,
                    card_hash=card.hash,
                    harness=harness,
                    source=NAME,
                    idea=idea,
                    is_baseline=candidate.id == bench.baseline.id,
                    gpu=gpu,
                    started=started,
                    author="" if candidate.id == bench.baseline.id else NAME,
                )
                before = JudgedKernel(candidate, verdict, about)
                log.add(before)
            if before is not None:
                result.kernels.append(before)
    return result


def _candidate(bench: Workbench, step: Step) -> tuple[Candidate, str]:
    """A step as the candidate that a search makes of it, with its idea."""
    wrapper = bench.card.wrapper(bench.precision, optimized=True)
    try:
        code = code_block(f"```cuda\n{step.code}```\n", wrapper)
    except Misfit as misfit:
        raise UsageError(f"The playbook's step {step.idea!r} cannot be used: {misfit}", "Mend the file.") from misfit
    command = merged(bench.baseline.command, step.flags)
    return Candidate(bench.card.name, bench.precision, code, command), step.idea


def _verdict(bench: Workbench, candidate: Candidate) -> Verdict:
    if candidate.id == bench.baseline.id:
        return bench.evaluate(candidate)
    verdict = bench.evaluate(candidate, to_beat=1.0)
    jump = None if verdict.score is None or verdict.emulated else JumpRule().broken(verdict.score, 1.0)
    return verdict if jump is None else agreed(verdict, bench.evaluate(candidate), jump)


class _Log:
    """The file of verdicts, open to add to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str, str, str], JudgedKernel] = {}
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            try:
                kernel = JudgedKernel.from_json(json.loads(line))
            except (RecordError, ValueError) as error:
                if not line.endswith(b"\n"):
                    break  # a kill cut it off
                raise UsageError(f"{path} is damaged: {error}.", "Remove it; what it held is judged again.") from error
            self._remember(kernel)
            whole += len(line)
        self._file = path.open("ab")
        self._file.truncate(whole)

    def _remember(self, kernel: JudgedKernel) -> None:
        about = kernel.provenance
        self._known[kernel.candidate.id, about.card_hash, about.gpu, about.harness] = kernel

    def find(self, candidate: Candidate, card_hash: str, gpu: str, harness: str) -> JudgedKernel | None:
        """The kernel, if it was judged by the same card and version on the same GPU."""
        return self._known.get((candidate.id, card_hash, gpu, harness))

    def add(self, kernel: JudgedKernel) -> None:
        """Keep a verdict: it is on the disk when this returns."""
        try:
            self._file.write(json.dumps(kernel.to_json(), ensure_ascii=False, allow_nan=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self._path, error, "Make room, and start it again: it goes on.") from error
        self._remember(kernel)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()


@contextmanager
def _kept(folder: Path) -> Iterator[_Log]:
    """The file of a folder, for this process alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = locked(folder)
    except OSError as error:
        raise unwritable(folder, error, "Name another folder with --out.") from error
    try:
        log = _Log(folder / FILE)
        try:
            yield log
        finally:
            log.close()
    finally:
        os.close(lock)
