"""A workbench whose work is done on a cluster: to a search it is like any other (strategies/protocol.py)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from cudamaster.cluster.fleet import Fleet
from cudamaster.cluster.messages import Built, Held, Job, Message, Said, Work
from cudamaster.cluster.parcel import packed
from cudamaster.cluster.retrying import Retrying
from cudamaster.core.values import Candidate, Findings, Hardware, Hold, Precision, ProfileMode, Verdict
from cudamaster.profiling.thresholds import choose as choose_thresholds
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region


class ClusterWorkbench:
    """One task and precision on a GPU of the cluster, and on another of the same model if its node is lost.

    `on_build` and `on_hold` get what happens on the node as soon as it is known here. `on_move` gets a line when work
    is done again elsewhere.
    """

    def __init__(
        self,
        fleet: Fleet,
        card: TaskCard,
        precision: Precision,
        *,
        unit: str | None = None,
        model: str | None = None,
        seed: int | None = None,
        profile: ProfileMode = ProfileMode.FILTERED,
        thresholds: str = "paper",
    ) -> None:
        """`unit` is the GPU to begin on, if its node is there; `model` the name of the GPU that it has to be.

        Raises CardError, UsageError for thresholds that cannot be used, and DeviceError if no such GPU is there.
        """
        self.card = card
        self.precision = precision
        self.on_build: Callable[[str, str], None] | None = None
        self.on_hold: Callable[[Hold], None] | None = None
        self.on_move: Callable[[str], None] | None = None
        station = fleet.choose(None if fleet.emulated else model, unit)
        modelled = None
        if station.is_.emulated:
            from cudamaster.modelling.verdicts import chosen_gpu

            modelled = chosen_gpu()
        name = station.is_.hardware.name if modelled is None else modelled.name
        self._job = Job(
            owner=secrets.token_hex(8),
            parcel=packed(card, precision),
            precision=precision,
            seed=seed,
            profile=profile,
            thresholds=choose_thresholds(thresholds, name),
            modelled=modelled,
        )
        self._work = Retrying(fleet, f"{card.name} ({precision})", station, self._moved)
        station.benches.add(self)

    @cached_property
    def baseline(self) -> Candidate:
        """The baseline as a candidate, with the default command for the GPU."""
        code = baseline_region(self.card, self.precision)
        return Candidate(self.card.name, self.precision, code, self._work.station.is_.default_command)

    @cached_property
    def hardware(self) -> Hardware:
        """The device in figures, as its node measured them."""
        found = self._done("hardware")
        assert isinstance(found, Hardware)
        return found

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """As `workbench.evaluation.Workbench.evaluate`; the verdict names the node and its GPU.

        Candidate and baseline are measured in turn on that GPU, so that P is of one GPU even after a move.
        """
        verdict = self._done("evaluate", candidate, to_beat=to_beat)
        assert isinstance(verdict, Verdict)
        station = self._work.station
        named = {"unit": station.is_.unit, "node": station.node}
        return replace(verdict, hardware={**verdict.hardware, **named})

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """What the profile filter says about a correct candidate."""
        found = self._done("findings", candidate, verdict)
        assert isinstance(found, Findings)
        return found

    def _done(self, what: str, *arguments: object, **options: object) -> Any:
        before = self._work.station
        try:
            return self._work.do(self._heard, "work", self._job, Work(what, arguments, options))
        finally:
            if (after := self._work.station) is not before:
                before.benches.discard(self)
                after.benches.add(self)

    def _heard(self, message: Message) -> None:
        if isinstance(message, Built) and self.on_build is not None:
            self.on_build(message.candidate, message.log)
        elif isinstance(message, Held) and self.on_hold is not None:
            self.on_hold(message.hold)
        elif isinstance(message, Said):
            self._moved(message.line)

    def _moved(self, line: str) -> None:
        if self.on_move is not None:
            self.on_move(line)
