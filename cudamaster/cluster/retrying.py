"""Work for a station that may be lost: it is done again on another one of the same kind, which is said in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudamaster.cluster.fleet import Fleet, Station
from cudamaster.cluster.messages import FailedThere, Message
from cudamaster.cluster.ray_calls import Lost
from cudamaster.core.errors import BaselineError, CudaMasterError, DeviceError, one_line

_MOST_LOST = 3  # nodes that may end while they do the same thing: it may be what ends them


class Retrying:
    """One thing after another on a station, and on the next one where a node is lost or in trouble.

    An error of a node in trouble leaves it out for all. What fails on two nodes in order is no node's fault, so that
    the second error is raised; what fails on one and not on the next leaves the first one out.
    """

    def __init__(self, fleet: Fleet, what: str, station: Station, say: Callable[[str], None]) -> None:
        """`what` names the work in the lines that `say` gets."""
        self._fleet = fleet
        self._what = what
        self._say = say
        self.station = station

    def do(self, tell: Callable[[Message], None], method: str, *arguments: object) -> Any:
        """The result of a keeper's method. Raises what that raises, and DeviceError if no station is left."""
        lost = 0
        failed: tuple[Station, str] | None = None
        while True:
            station = self.station
            error: CudaMasterError | OSError | None = None
            if station.left_out is not None:
                self._move((), station.left_out)
                continue
            try:
                result = self._fleet.call(station, tell, method, *arguments)
            except Lost as gone:
                lost += 1
                if lost >= _MOST_LOST:
                    last = f"the last time {station.node}: {gone}"
                    what = f"{lost} times a node was lost that worked on {self._what}, {last}."
                    raise DeviceError(what, "Look at its logs; a run or suite goes on with --resume.") from None
                if gone.returns:
                    self._say(f"{self._what} is done again on {station.described}: {gone}.")
                else:
                    self._fleet.leave_out(station, str(gone))
            except FailedThere as there:
                error = there.error
                if isinstance(error, BaselineError) or not isinstance(error, DeviceError | OSError):
                    raise error from None
            else:
                if failed is not None and self._fleet.leave_out(*failed):
                    self._say(f"{failed[0].described} is left out: {failed[1]}; {station.node} had no such trouble.")
                return result
            if error is not None:
                failed = self._after(station, error, failed)

    def _after(
        self, station: Station, error: CudaMasterError | OSError, failed: tuple[Station, str] | None
    ) -> tuple[Station, str] | None:
        """Decide where to go on after an error of a node or of the work itself; the station that failed by itself."""
        why = one_line(error.reason if isinstance(error, CudaMasterError) else error, 300).rstrip(".")
        try:
            trouble = self._fleet.trouble(station)
        except Lost as gone:
            trouble = str(gone)
        if trouble is not None:
            self._fleet.leave_out(station, trouble)
            return failed
        if failed is not None:
            raise error from None
        try:
            self._move((station,), why)
        except DeviceError:
            raise error from None
        return station, why

    def _move(self, besides: tuple[Station, ...], why: str) -> None:
        before = self.station
        self.station = self._fleet.choose(before.kind, besides=besides)
        out = ", which is left out" if before.left_out is not None else ""
        self._say(
            f"{self._what} continues on {self.station.described} instead of {before.described}{out}: {why}."
            f"{self.station.differs(before)}"
        )
