"""A time limit for a call that may hang, whatever it waits for: a server that sends a byte a second never times out."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

_LOOKED_EVERY_S = 0.1
_STOPPED_S = 1.0  # if a wait took this much longer, the process was stopped meanwhile


class OutOfTime(Exception):
    """A call did not end within its limit."""


class _Abandoned(SystemExit):
    """Ends the thread of a call that nobody waits for any more.

    No `except Exception` catches it, and nothing is printed if the call has just ended.
    """


def in_time(call: Callable[[], T], limit_s: float | None, look: Callable[[], None] | None = None) -> T:
    """What `call` returns or raises, or OutOfTime if that takes longer than `limit_s`; None is no limit.

    Meanwhile `look` is called several times a second; an exception from it ends the wait. The call has a thread of its
    own. A call that is given up ends at its next Python instruction, which closes its connection, so a server stops
    sending. A reply that arrived while the whole process was stopped is taken before the call is given up.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    thread = threading.Thread(target=work, name="call", daemon=True)
    until = None if limit_s is None else time.monotonic() + limit_s
    thread.start()
    try:
        while not future.done():
            if look is not None:
                look()
            left_s = _LOOKED_EVERY_S if until is None else min(_LOOKED_EVERY_S, until - time.monotonic())
            if left_s <= 0:
                raise OutOfTime(f"no whole reply within {limit_s:g} s")
            began = time.monotonic()
            wait([future], left_s)
            if time.monotonic() - began > left_s + _STOPPED_S:
                wait([future], _STOPPED_S)
    except BaseException:
        if thread.ident is not None and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned))
        raise
    return future.result()
