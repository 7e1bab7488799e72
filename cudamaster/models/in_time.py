"""A call that may hang, held to a limit whatever it waits for: a server that sends a byte a second never times out."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

_LOOKED_EVERY_S = 0.1
_STOPPED_S = 1.0  # a wait that took so much longer is one in which the process was stopped


class OutOfTime(Exception):
    """A call did not end within its limit."""


class _Abandoned(SystemExit):
    """Ends the thread of a call that nobody waits for any more. No `except Exception` on its way takes it, and nothing
    is printed where it comes when the call has just ended.
    """


def in_time(call: Callable[[], T], limit_s: float | None, look: Callable[[], None] | None = None) -> T:
    """What `call` returns or raises, or OutOfTime when that takes longer than `limit_s`; None is no limit.

    `look` is called several times a second meanwhile; what it raises ends the wait. The call has a thread of its own.
    One that is given up is ended at the next thing that happens to it, which closes its connection: a server that still
    sends need not go on. What came while the whole process was stopped is taken before anything is given up.
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
