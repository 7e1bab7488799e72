"""Runs what takes long in threads: the caller hears how far it is, and may go away, which ends its programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cudamaster.devices.process import Work
from cudamaster.library.progress import Progress

_T = TypeVar("_T")
_LOOKED_S = 0.2
_AT_ONCE = 4  # a call runs several compilers; the device's own lock keeps measurements apart

Tell = Callable[[float, str], Awaitable[None]]


class Ended(Exception):
    """What a call raises that was cancelled. Nobody waits for it."""


class Calls:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="call")
        self._quick = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="quick")
        self._works: set[Work] = set()

    async def run(self, do: Callable[[Progress], _T], tell: Tell, *, quick: bool = False) -> _T:
        """What `do` returns or raises, from a thread; `tell` gets seconds so far and each new line of progress.

        What is `quick` does not wait for the others.

        If the task that awaits this is cancelled, or `tell` fails, the programs of `do` are killed, and it gets a
        KeyboardInterrupt within seconds, as after Ctrl-C.
        """
        work, began = Work(), time.monotonic()
        lines = ["waiting for other calls to end"]

        def working() -> _T:
            lines.append("")
            try:
                with work.begun():
                    return do(lines.append)
            except KeyboardInterrupt:
                raise Ended from None
            finally:
                self._works.discard(work)

        self._works.add(work)
        future = asyncio.get_running_loop().run_in_executor(self._quick if quick else self._pool, working)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # or it is logged as never seen
        said = None
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_LOOKED_S)
                if not future.done() and lines[-1] not in ("", said):
                    said = lines[-1]
                    await tell(round(time.monotonic() - began, 1), said)
            return future.result()
        finally:
            if not future.done():
                work.end()

    def close(self) -> None:
        """End all calls, and wait until their programs are gone."""
        for work in tuple(self._works):
            work.end()
        for pool in (self._pool, self._quick):
            pool.shutdown(wait=True)
