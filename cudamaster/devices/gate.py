"""Between whoever builds a candidate and the judge that is started ahead of it."""

from __future__ import annotations

import fcntl
import threading
import time

_LOOKED_AT_EVERY_S = 0.01


class NeverNeeded(Exception):
    """What was waited for is no longer needed."""


class Gate:
    """Opened once the candidate is there, or closed where there will be none; which of the two cannot change.

    `quiet` says of an open one that nothing else of ours may be on any device of the machine (Device.run).
    """

    def __init__(self) -> None:
        self.opened = False
        self.quiet = False
        self._known = threading.Event()
        self._deciding = threading.Lock()

    def open(self, *, quiet: bool = False) -> None:
        """The candidate is there."""
        with self._deciding:
            if not self._known.is_set():
                self.opened, self.quiet = True, quiet
                self._known.set()

    def close(self) -> None:
        """There will be no candidate."""
        with self._deciding:
            self._known.set()

    @property
    def closed(self) -> bool:
        """Whether there will be no candidate."""
        return self._known.is_set() and not self.opened

    def wait(self) -> bool:
        """Whether the candidate is there, once that is known."""
        self._known.wait()
        return self.opened


def lock(descriptor: int, *, alone: bool, gate: Gate | None = None) -> None:
    """Hold a lock file; raises NeverNeeded where the gate closes while somebody else holds it."""
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    while gate is not None and not gate.opened:
        if gate.closed:
            raise NeverNeeded
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOOKED_AT_EVERY_S)
    fcntl.flock(descriptor, kind)
