"""Connects the build of a candidate with the judge that starts before the build has ended."""

from __future__ import annotations

import threading


class NeverNeeded(Exception):
    """Raised when a judge's candidate will never come."""


class Gate:
    """Opened when the candidate is built, or closed if there will be none. It changes only once.

    `quiet`, for an open gate, means that nothing else of ours may run on any device of the machine (Device.run).
    """

    def __init__(self) -> None:
        self.opened = False
        self.quiet = False
        self._known = threading.Event()
        self._deciding = threading.Lock()

    def open(self, *, quiet: bool = False) -> None:
        """The candidate is built."""
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
        """Whether the candidate is built, once that is known."""
        self._known.wait()
        return self.opened

    def wait_open(self) -> None:
        """Wait for the candidate; raises NeverNeeded if there will be none."""
        if not self.wait():
            raise NeverNeeded
