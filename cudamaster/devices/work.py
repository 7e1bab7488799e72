"""What a thread works for: pools of threads, and calls that can be ended while the process goes on (process.py)."""

from __future__ import annotations

import threading


class _Thread(threading.local):
    of: tuple[threading.Event, ...] = ()


_thread = _Thread()


def whose() -> tuple[threading.Event, ...]:
    """What this thread works for, the outermost first: each is set once it is ended.

    Threads that work for the same begin with the same.
    """
    return _thread.of


def works_for(of: tuple[threading.Event, ...]) -> None:
    """Say what this thread works for from now on."""
    _thread.of = of


def check() -> None:
    """Raise KeyboardInterrupt if any of that was ended: nobody waits for what this thread does."""
    if any(each.is_set() for each in _thread.of):
        raise KeyboardInterrupt
