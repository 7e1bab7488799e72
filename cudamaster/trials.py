"""How the judge is run: which workers, cases and options its command names, and its report judged.

Evaluations, contests and the search for faults differ in what they ask of the judge; what each of its runs has in
common is here.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudamaster import held_out
from cudamaster.building import Builder
from cudamaster.cards import Case, TaskCard
from cudamaster.devices.protocol import Device, MeasuringProtocol, Ran, baseline_alone, worker_words
from cudamaster.errors import BaselineError
from cudamaster.judging import Judgement, judge, parse
from cudamaster.values import Status

CHECK_LIMIT_S = 600.0
VERIFY = ("--cases", "verify", "--calls", "0")


class Trials:
    """Runs of the judge of one task and precision on one device."""

    def __init__(
        self,
        card: TaskCard,
        builder: Builder,
        device: Device,
        protocol: MeasuringProtocol,
        *,
        calls: int,
        seed: int | None,
    ) -> None:
        """`calls` are timed per case where a run's options do not say otherwise; `seed` is as the workbench has it."""
        self._card = card
        self._builder = builder
        self._device = device
        self._protocol = protocol
        self._calls = calls
        self._seed = seed

    def draw_seed(self) -> int:
        """The seed of the inputs of one evaluation: a fresh one unless it is fixed."""
        return secrets.randbits(63) if self._seed is None else self._seed

    def workers(self, candidate: Sequence[str]) -> list[str]:
        """The judge's options that say who is judged; `candidate` is the command of its worker."""
        baseline = [str(self._builder.baseline_worker())]
        return [*worker_words("baseline", baseline), *worker_words("candidate", candidate)]

    def verify(
        self, workers: Sequence[str], seed: int, more: Sequence[str], *, reversed_threads: bool = False
    ) -> Judgement:
        """The judgement on the verification cases and small held-out ones."""
        options = [*VERIFY, *more]
        return self.run(
            workers, self.verification(seed), options, seed, CHECK_LIMIT_S, reversed_threads=reversed_threads
        )

    def verification(self, seed: int) -> list[Case]:
        """The verification cases and small held-out ones."""
        return [*(case for case in self._card.cases if not case.sweep), *held_out.draw(self._card, seed)]

    def run(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        quiet: bool = False,
        trusted: bool = False,
    ) -> Judgement:
        """The judgement on those cases, by the judge run with those options.

        `trusted` is a candidate that is the baseline itself, which has no reason to lie about its times. Where others'
        times are refused for what the judge's own clock says, all is measured once more: a program that keeps
        the processor busy makes an honest process look like that, but not twice, and who lies does so again.

        Where the judge itself fails beside a candidate, as one that takes all of a GPU's memory makes it fail, the
        baseline is run alone, and then both again: a judge that fails only with the candidate is that one's doing.
        BaselineError where it is not.
        """

        rivalled = "--rival" in workers
        doubted = () if trusted else ("candidate", "rival") if rivalled else ("candidate",)

        def told(workers: Sequence[str], more: Sequence[str] = ()) -> tuple[list[Mapping[str, Any]], Ran]:
            every = [*options, *more]
            return self.report(workers, cases, every, seed, limit_s, reversed_threads=reversed_threads, quiet=quiet)

        def once() -> Judgement:
            return judge(*told(workers), cases, doubted=doubted)

        def whoever_failed() -> Judgement:
            try:
                return once()
            except BaselineError:
                if "--candidate" not in workers:
                    raise
            alone = judge(*told(baseline_alone(workers), ["--baseline-only", "--calls", "0"]), cases)
            try:
                return once()
            except BaselineError as error:
                whose = "these kernels, and not without them" if rivalled else "this candidate, and not without it"
                detail = f"with {whose}: {error.reason}"
                return replace(alone, status=Status.FAULT, detail=detail, cases=())

        first = whoever_failed()
        if first.status is not Status.REJECTED:
            return first
        second = whoever_failed()
        note = f"measured a second time, since the first time {first.detail}"
        return replace(second, seconds=first.seconds + second.seconds, notes=(*second.notes, note))

    def report(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        quiet: bool = False,
    ) -> tuple[list[Mapping[str, Any]], Ran]:
        """What the judge reported, not judged yet, and what became of its process."""
        command = self._command(workers, cases, options, seed)
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"
            alone = command[command.index("--calls") + 1] != "0"
            ran = self._device.run(
                command, report, limit_s, reversed_threads=reversed_threads, alone=alone, quiet=quiet and alone
            )
            return parse(report.read_text("utf-8", "replace")) if report.is_file() else [], ran

    def _command(self, workers: Sequence[str], cases: Sequence[Case], options: Sequence[str], seed: int) -> list[str]:
        """The judge's command for those cases."""
        command = [str(self._builder.judge()), *workers]
        command += ["--seed", str(seed), "--warmups", str(self._protocol.warmups)]
        command += ["--pairs", str(self._protocol.pairs)]
        if "--calls" not in options:
            command += ["--calls", str(self._calls)]
        if (limit := self._work_limit()) is not None:
            command += ["--work-limit", f"{limit:.17g}"]
        command += ["--call-limit", f"{self._protocol.call_limit_s:g}", *options]
        for case in cases:
            if case.held_out:
                command += ["--case", held_out.argument(case)]
        return command

    def large(self, seed: int) -> list[Case]:
        """Large held-out cases; on a device with a work limit those no heavier than a timed case that is run."""
        drawn, limit = list(held_out.draw(self._card, seed, largest=True)), self._work_limit()
        if limit is None:
            return drawn
        heaviest = max(case.weight for case in self._card.cases if case.sweep and case.weight <= limit)
        return [case for case in drawn if case.weight <= heaviest]

    def _work_limit(self) -> float | None:
        """Weight of the heaviest timed case that is run: the lightest one is in any case, so that there is a score."""
        limit = self._protocol.work_limit
        lightest = min(case.weight for case in self._card.cases if case.sweep)
        return None if limit is None else max(limit, lightest)
