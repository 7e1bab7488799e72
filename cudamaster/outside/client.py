"""The end of an agent's search that `evaluate` speaks to when it runs inside one."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cudamaster.core import errors
from cudamaster.core.errors import CudaMasterError, DeviceError, UsageError
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import Precision, Verdict

# In the environment of an agent's program: http://TOKEN@127.0.0.1:PORT of the search that it works for.
REFEREE = "CUDAMASTER_REFEREE"
T = TypeVar("T")
_LOOKED_EVERY_S = 0.2
_OUTSIDE = f"To measure outside of it, where nothing counts for the search, unset {REFEREE}."


@dataclass(frozen=True)
class About:
    """What the search judges: kernels of a task in a precision, on a device ("cpu" or "cuda")."""

    task: str
    precision: Precision
    device: str


@dataclass(frozen=True)
class Submitted:
    """A kernel on its way to the referee: code of the region, and the compile command (the default one if empty)."""

    task: str
    precision: Precision
    code: str
    command: str = ""


def of_environment() -> Referee | None:
    """The referee of the search that this process works for as its agent; None outside of one."""
    address = os.environ.get(REFEREE)
    return Referee(address) if address else None


def must_be_outside(what: str) -> None:
    """Raise UsageError inside an agent's search, where `what` is not offered: it would be in nobody's record."""
    if os.environ.get(REFEREE):
        raise UsageError(
            f"{what} is not offered inside a search.", f"Submit kernels with `cudamaster evaluate`. {_OUTSIDE}"
        )


class Referee:
    """A search that judges what its agent submits."""

    def __init__(self, address: str) -> None:
        """Raises UsageError for what is no address of one."""
        try:
            parts = urlsplit(address)
            self._host, self._port, self._token = parts.hostname or "", parts.port or 0, parts.username or ""
        except ValueError:
            self._port = 0
        if not self._port:
            raise UsageError(
                f"{REFEREE} is not the address of a search.", f"Leave it as it was set, or unset {REFEREE}."
            )

    def about(self) -> About:
        """What the search judges. Raises DeviceError if it has ended."""
        return self._read(About, self._asked("GET"))

    def evaluate(self, submitted: Submitted, look: Callable[[], None] = lambda: None) -> Verdict:
        """The verdict on a kernel, once the search has judged it, however long that takes.

        Meanwhile `look` is called several times a second; an exception from it ends the wait, and withdraws the kernel
        if the search has not taken it. Raises what the referee does: UsageError for another task, BudgetSpent when no
        submission is left, and DeviceError if the search ends meanwhile.
        """
        return self._read(Verdict, self._asked("POST", json.dumps(to_json(submitted)), look))

    def _asked(self, method: str, body: str | None = None, look: Callable[[], None] = lambda: None) -> Any:
        import http.client  # not before it is needed: a replay does without a network, and every command loads this

        connection = http.client.HTTPConnection(self._host, self._port)
        try:
            connection.request(method, "/", body, {"Authorization": f"Bearer {self._token}"})
            while connection.sock is not None and not select.select([connection.sock], [], [], _LOOKED_EVERY_S)[0]:
                look()
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DeviceError("The search that judges here has ended or cannot be reached.", _OUTSIDE) from error
        finally:
            connection.close()
        if "error" in answer:
            raise _raised(answer["error"])
        return answer["result"]

    def _read(self, kind: type[T], raw: Any) -> T:
        try:
            return from_json(kind, raw)
        except RecordError as error:
            raise DeviceError(
                f"The search that judges here is of another version: {error}.", "Use the program that started it."
            ) from error


def _raised(error: dict[str, str]) -> CudaMasterError:
    kind = getattr(errors, error["kind"], CudaMasterError)
    known = isinstance(kind, type) and issubclass(kind, CudaMasterError) and kind is not errors.CardError
    return (kind if known else CudaMasterError)(error["reason"], error["fix"])
