"""What an agent can ask for, as plain functions: each checks what it is given, counts, calls the library, and keeps the
result. The commands call the same functions of the library."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.core.records import to_json
from cudamaster.core.values import Candidate, Hardware, Status, Verdict
from cudamaster.library import faults, profiles, verdicts
from cudamaster.library.kernel_file import region_of
from cudamaster.library.progress import Progress
from cudamaster.library.subjects import choose_device, command_of, precision_for
from cudamaster.serving import answers
from cudamaster.serving.catalog import Catalog, described
from cudamaster.serving.kernels import ENDINGS, in_folder
from cudamaster.serving.ledger import Best, Found, Ledger
from cudamaster.workbench.evaluation import Workbench

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.tasks.cards import TaskCard

FILE, KEPT, BASELINE, BEST = "file:", "kept:", "baseline", "best"
_MOST_BEST = 40


@dataclass
class _Call:
    """A call that counts: its number, and what is kept of it at its end."""

    number: int
    whole: dict[str, Any] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)


@dataclass(frozen=True)
class _Subject:
    """A kernel of a call, and the bench that judges it."""

    bench: Workbench
    candidate: Candidate


class Tools:
    """The functions behind the tools. They may be called from any thread."""

    def __init__(self, catalog: Catalog, device: str, folder: Path, ledger: Ledger) -> None:
        """`device` is a name, looked for when it is first needed; files of kernels lie in `folder`."""
        self.catalog = catalog
        self.ledger = ledger
        self._name = device
        self._folder = folder.resolve()
        self._device: Device | None = None
        self._lock = threading.Lock()

    def list_tasks(self, suite: str | None, category: str | None) -> dict[str, Any]:
        """The tasks, by suite and category."""
        return self.catalog.listed(suite, category)

    def read_card(self, task: str, precision: str | None, *, with_baseline: bool) -> dict[str, Any]:
        """What a kernel of the task has to do."""
        return described(self._bench(self.catalog.load(task), precision), with_baseline=with_baseline)

    def evaluate(
        self,
        progress: Progress,
        task: str,
        kernel: str,
        precision: str | None,
        command: str | None,
        *,
        check_only: bool,
    ) -> dict[str, Any]:
        """Check a kernel, and time it against the baseline."""
        card = self.catalog.load(task)
        subject = self._subject(card, kernel, precision, command)
        best = self._best_of(subject.bench)
        to_beat = max(1.0, best.found.score or 1.0) if best is not None else 1.0
        with self._counted("evaluate", card, [subject.candidate], 1) as call:
            verdict = verdicts.evaluate(
                card, subject.candidate, device=self.device, check_only=check_only, to_beat=to_beat, progress=progress
            )
            call.found.append(self._found(subject, verdict, scored=True))
            call.whole["verdict"] = to_json(verdict)
        after = self._best_of(subject.bench)
        is_best = after is not None and after.found.kernel == verdict.candidate
        said = answers.of_verdict(verdict, timed=not check_only)
        if after is not None:
            said["best_so_far"] = {"kernel": after.found.kernel, "P": answers.rounded(after.found.score)}
        return self._told(said, call, answers.next_step(verdict, timed=not check_only, best=is_best))

    def compare(
        self, progress: Progress, task: str, first: str, second: str, precision: str | None, command: str | None
    ) -> dict[str, Any]:
        """Check two kernels, and time the second against the first."""
        card = self.catalog.load(task)
        one = self._subject(card, first, precision, command)
        other = self._subject(card, second, one.candidate.precision.value, command)
        with self._counted("compare", card, [one.candidate, other.candidate], 2) as call:
            compared = verdicts.compare(card, one.candidate, other.candidate, device=self.device, progress=progress)
            pair = ((one, compared.first), (other, compared.second))
            call.found += [self._found(subject, verdict, scored=False) for subject, verdict in pair]
            call.whole["compared"] = to_json(compared)
        said = answers.of_comparison(compared, one.candidate.id, other.candidate.id)
        wrong = next((verdict for _, verdict in pair if not verdict.correct), None)
        step = "Keep the faster one; unsure and same are no gain."
        return self._told(said, call, step if wrong is None else answers.next_step(wrong, timed=False, best=False))

    def profile(
        self, progress: Progress, task: str, kernel: str, precision: str | None, command: str | None, case: str
    ) -> dict[str, Any]:
        """What the hardware says of a kernel and of the baseline, or a model of a GPU does."""
        card = self.catalog.load(task)
        profiles.chosen_cases(card, case)
        subject = self._subject(card, kernel, precision, command)
        alone = kernel == BASELINE
        with self._counted("profile", card, [subject.candidate], 1) as call:
            found = profiles.profile(
                card, None if alone else subject.candidate, precision=subject.candidate.precision.value, case=case,
                device=self.device, progress=progress,
            )  # fmt: skip
            if found.verdict is not None:
                call.found.append(self._found(subject, found.verdict, scored=False))
            call.whole["profiles"] = to_json(found)
        step = "Change what bounds the kernel, then evaluate it again."
        if found.verdict is not None and not found.verdict.correct:
            step = answers.next_step(found.verdict, timed=False, best=False)
        return self._told(answers.of_profiles(found), call, step)

    def sanitize(
        self, progress: Progress, task: str, kernel: str, precision: str | None, command: str | None, tool: str
    ) -> dict[str, Any]:
        """The faults of a kernel that a right result can hide."""
        card = self.catalog.load(task)
        subject = self._subject(card, kernel, precision, command)
        with self._counted("sanitize", card, [subject.candidate], 1) as call:
            said = faults.sanitize(card, subject.candidate, tool=tool, device=self.device, progress=progress)
            if said.found:
                first = next(report for report in said.reports if report.findings)
                fault = Verdict(said.candidate, self.device.name, self.device.emulated, Status.FAULT, first.summary)
                call.found.append(self._found(subject, fault, scored=False))
            call.whole["reports"] = to_json(said.reports)
        mend = (
            "Mend what `log` shows, and evaluate it again." if said.found else "A tool could not finish: see `tools`."
        )
        return self._told(answers.of_faults(said), call, "Nothing was found." if said.clean else mend)

    def best_so_far(self, task: str | None, precision: str | None, *, with_kernel: bool) -> dict[str, Any]:
        """The best kernels that this server, and earlier ones with the same record, have measured."""
        if task is None:
            if with_kernel:
                raise UsageError("with_kernel is for one task.", "Name the task.")
            every = sorted(self.ledger.best(), key=lambda one: (one.found.task, one.found.precision))
            said = {"best": [_shown(one) for one in every[-_MOST_BEST:]], "left": self.ledger.left}
            none = "No kernel was measured to be right and faster than its baseline yet: evaluate one."
            return {**said, "next": "Name a task, with with_kernel, to get its kernel." if every else none}
        bench = self._bench(self.catalog.load(task), precision)
        best = self._best_of(bench)
        said = {"best": [] if best is None else [_shown(best)], "left": self.ledger.left}
        if best is None:
            none = "No kernel of this task is right and faster than the baseline yet. read_card, then evaluate."
            return {**said, "next": none}
        kept = self.ledger.kernel(best.found.kernel)
        if with_kernel:
            said |= {"text": kept.code, "command": kept.command}
        return {**said, "kernel_link": kernel_link(kept.id), "next": "Write a faster one, and evaluate it."}

    @property
    def device(self) -> Device:
        """The device, whose holds are counted. Raises DeviceError if it is not there."""
        with self._lock:
            if self._device is None:
                self._device = choose_device(self._name)
                self._device.on_hold = self.ledger.held
            return self._device

    def _bench(self, card: TaskCard, precision: str | None, *kernels: object) -> Workbench:
        return Workbench(card, precision_for(card, precision, *kernels), self.device)

    def _subject(self, card: TaskCard, given: str, precision: str | None, command: str | None) -> _Subject:
        """The kernel that is meant. Raises UsageError, before anything is counted."""
        kept = self.ledger.kernel(given.removeprefix(KEPT)) if given.startswith(KEPT) else None
        bench = self._bench(card, precision, kept)
        if given == BASELINE:
            kept = bench.baseline
        elif given == BEST:
            best = self._best_of(bench)
            if best is None:
                raise UsageError(f"There is no best kernel of {card.name} yet.", "Evaluate one first.")
            kept = self.ledger.kernel(best.found.kernel)
        if kept is not None:
            if (kept.task, kept.precision) != (card.name, bench.precision):
                what = f"The kernel {kept.id} is one of {kept.task} in {kept.precision}."
                raise UsageError(what, f"It is not one of {card.name} in {bench.precision}: give another.")
            return _Subject(bench, kept if command is None else replace(kept, command=command))
        code = self._code(card, given, bench.precision)
        return _Subject(bench, Candidate(card.name, bench.precision, code, command_of(code, self.device, command)))

    def _code(self, card: TaskCard, given: str, precision: str) -> str:
        if given.startswith(FILE):
            name = given.removeprefix(FILE)
            return region_of(in_folder(self._folder, name), card, precision, name)
        if "\n" not in given and (given.endswith(ENDINGS) or not given.strip()):
            fix = f"Give the text, or the name of a file as `{FILE}NAME`."
            raise UsageError(f"The kernel {given[:200]!r} is no CUDA text.", fix)
        return region_of(given.encode("utf-8", "surrogatepass"), card, precision, "given as text")

    @contextmanager
    def _counted(self, tool: str, card: TaskCard, kernels: Sequence[Candidate], evaluations: int) -> Iterator[_Call]:
        """A call that counts against the budget. What it found is kept however it ends."""
        call = _Call(self.ledger.begin(tool, card.name, evaluations))
        outcome, back = "failed", evaluations
        try:
            for kernel in kernels:
                self.ledger.keep(kernel)
            yield call
            outcome, back = "done", 0
        except KeyboardInterrupt:
            outcome, back = "cancelled", 0
            raise
        except CudaMasterError as error:
            call.whole["error"] = {"reason": error.reason, "fix": error.fix}
            raise
        finally:
            about = {"tool": tool, "task": card.name, "outcome": outcome, "kernels": to_json(tuple(kernels))}
            self.ledger.end(call.number, outcome, {**about, **call.whole}, call.found, given_back=back)

    def _found(self, subject: _Subject, verdict: Verdict, *, scored: bool) -> Found:
        """What is kept of a verdict for `best`."""
        bench, speed = subject.bench, verdict.speed
        found = Found(
            bench.card.name, bench.precision.value, bench.card.hash, _where(bench.hardware), subject.candidate.id,
            verdict.status.value,
        )  # fmt: skip
        if not scored or verdict.score is None or speed is None:
            return found
        return replace(
            found, score=verdict.score, low=speed.interval.low, high=speed.interval.high, change=speed.change.value
        )

    def _best_of(self, bench: Workbench) -> Best | None:
        """The best kernel of a bench's task that was measured as it would be now."""
        same = {"task": bench.card.name, "precision": bench.precision.value, "card": bench.card.hash}
        return next(iter(self.ledger.best(_where(bench.hardware), **same)), None)

    def _told(self, said: dict[str, Any], call: _Call, step: str) -> dict[str, Any]:
        return {**said, "left": self.ledger.left, "next": step, "whole": verdict_link(call.number)}


def verdict_link(number: int | str) -> str:
    """The address of a whole result."""
    return f"cudamaster://verdicts/{number}"


def kernel_link(identifier: str) -> str:
    """The address of a kernel's text."""
    return f"cudamaster://kernels/{identifier}"


def _where(hardware: Hardware) -> str:
    """What gives the times: scores from different places do not compare."""
    model = hardware.modelled
    return hardware.name if model is None else f"modelled: gpu-model {model.version} of an {model.gpu}"


def _shown(one: Best) -> dict[str, Any]:
    found = one.found
    return {
        "task": found.task,
        "precision": found.precision,
        "kernel": found.kernel,
        "P": answers.rounded(found.score),
        "interval": [answers.rounded(found.low), answers.rounded(found.high)],
        "change": found.change,
        "times": found.where,
        "measured": one.measured,
        "whole": verdict_link(one.call),
    }
