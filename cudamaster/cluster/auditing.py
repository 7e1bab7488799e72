"""An audit on a cluster: its batches of candidates are spread over the GPUs of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cudamaster.audit.corpus import Kind
from cudamaster.audit.outcomes import Outcome
from cudamaster.audit.running import Subject
from cudamaster.cluster.fleet import Fleet
from cudamaster.cluster.messages import Description, Message, Said
from cudamaster.cluster.parcel import packed
from cudamaster.cluster.retrying import Retrying


class ClusterAudit:
    """Where an audit's candidates are judged: the GPUs of the model that is there most often.

    `device` is what all of them are, and `left_out` names those of other models.
    """

    def __init__(self, fleet: Fleet, say: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._say = say
        kinds = [station.kind for station in fleet.stations]
        self._kind = max(kinds, key=kinds.count)
        first = next(station for station in fleet.stations if station.kind == self._kind)
        self.device: Description = first.is_
        self.left_out = [station.described for station in fleet.stations if station.kind != self._kind]

    def outcomes(
        self, work: Sequence[tuple[Kind, Subject]], known: Mapping[str, Outcome]
    ) -> Sequence[tuple[Outcome, bool]]:
        """The outcomes of kinds that are judged alike for one task (audit.running.outcomes)."""
        subject = work[0][1]
        card, precision = subject.card, subject.precision
        what = f"the audit of {card.name} ({precision})"
        retrying = Retrying(self._fleet, what, self._fleet.choose(self._kind), self._say)
        of_task = {key: one for key, one in known.items() if one.task == card.name}
        kinds = [kind for kind, _ in work]
        found: Any = retrying.do(
            partial(_heard, self._say), "audit", packed(card, precision), precision, kinds, of_task
        )
        return list(found)


def _heard(say: Callable[[str], None], message: Message) -> None:
    if isinstance(message, Said):
        say(message.line)
