"""Between whoever builds a candidate and the judge that is started ahead of it."""

from __future__ import annotations

import threading


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

    def wait_open(self) -> None:
        """Wait for the candidate; raises NeverNeeded where there is none."""
        if not self.wait():
            raise NeverNeeded
