"""Runs a program with a time limit and bounded output, and kills its whole process group when it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeVar

from cudamaster.core import keys, resources
from cudamaster.core.errors import DeviceError
from cudamaster.devices import work
from cudamaster.devices.judge_request import LARGEST_FILE_BYTES
from cudamaster.devices.protocol import Ran

_T = TypeVar("_T")
_running: dict[int, tuple[threading.Event, ...]] = {}  # process groups, and what the threads that wait work for
_ending = threading.Event()
_KEPT_BYTES = 32 * 1024  # of the start and of the end of the output, each
_LONGEST_POLL_MS = 2**31 - 1
_LOOKED_S = 0.1
_FULL = os.strerror(errno.ENOSPC)
_LITTLE_BYTES = 64 << 20  # a compiler may need as much, and gives it back when it fails


class Stop:
    """Ends the programs of the functions that were called through it, at the latest when its block is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._stopped = False

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def call(self, function: Callable[[], _T]) -> _T:
        """The function's result; `run_limited` in this thread knows meanwhile that it can be stopped."""
        _stops.current = self
        try:
            return function()
        finally:
            _stops.current = None

    def stop(self) -> None:
        """End what runs, and whatever is started later."""
        with self._lock:
            self._stopped = True
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    @contextlib.contextmanager
    def ends(self, group: int) -> Iterator[None]:
        """Inside the block, `stop` ends the process group."""
        with self._lock:
            self._groups.add(group)
        if self._stopped:
            self.stop()
        try:
            yield
        finally:
            with self._lock:
                self._groups.discard(group)


class _Stops(threading.local):
    current: Stop | None = None


_stops = _Stops()


class Work:
    """What one thread does, with the threads of its pools, so that another can end it while the process goes on."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Inside the block this thread does the work. Raises KeyboardInterrupt in it soon after the work is ended."""
        before = work.whose()
        work.works_for((*before, self._ended))
        try:
            work.check()
            yield
        finally:
            work.works_for(before)

    def end(self) -> None:
        """Kill the programs that run for it. Those that it starts later are killed as well. Does not wait."""
        _end(self._ended)


def lock(descriptor: int, kind: int) -> None:
    """Wait for a lock, as flock does, but not longer than for what this thread works for.

    Another thread waits in flock, since nothing but the lock ends that; it gives the lock back if nobody wants it now.
    """
    if not work.whose():
        fcntl.flock(descriptor, kind)
        return
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return
    copy, taken = os.dup(descriptor), threading.Event()

    def wait() -> None:
        try:
            fcntl.flock(copy, kind)
            taken.set()
        finally:
            os.close(copy)

    threading.Thread(target=wait, daemon=True).start()
    while not taken.wait(_LOOKED_S):
        work.check()


def run_limited(
    command: Sequence[str],
    limit_s: float,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    held: Sequence[int] = (),
    largest_file_bytes: int = LARGEST_FILE_BYTES,
    cores: Collection[int] = (),
    goes_on: Callable[[], bool] | None = None,
) -> Ran:
    """Run `command` for at most `limit_s` seconds; `stderr` of the result holds both streams, cut in the middle.

    Output goes to a file rather than a pipe, so a program that prints without end cannot fill our memory. A limit on
    file size bounds the file, and the memory that processes share. `held` are descriptors that stay open in the child:
    a lock held through one lasts as long as the child lives, even if we are killed. Without an `environment` the child
    gets that of tools (keys.py). If `cores` are given, it runs only on them. Raises DeviceError if the program cannot
    be started.

    `goes_on` is for a program that was started early. It may take its time and returns whether the program continues:
    then the program gets a line, and its seconds count from there; otherwise it is killed.
    """
    work.check()
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL if goes_on is None else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=keys.for_tools() if environment is None else dict(environment),
                start_new_session=True,
                pass_fds=tuple(held),
            )
        except OSError as error:
            reason = f"{command[0]} cannot be started: {error.strerror}."
            raise DeviceError(reason, "Build or install it again.") from error
        _running[process.pid] = work.whose()
        if _ending.is_set():
            end_all()
        if any(each.is_set() for each in work.whose()):
            _kill([process.pid])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
            if cores:
                os.sched_setaffinity(process.pid, cores)
        expired, ahead = False, 0.0
        try:
            if goes_on is not None:
                wanted = goes_on()
                ahead = time.monotonic() - started
                _answer(process, wanted)
            with contextlib.nullcontext() if _stops.current is None else _stops.current.ends(process.pid):
                _wait(process, limit_s)
        except subprocess.TimeoutExpired:
            expired = True
        finally:
            # Also if it ended by itself: its children must not outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            _running.pop(process.pid, None)
            process.wait()
        if _ending.is_set():
            threading.Event().wait()
        work.check()
        text = ends(output)
    code = process.returncode
    return Ran(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 and not expired else None,
        expired=expired,
        stderr=text,
        seconds=time.monotonic() - started - ahead,
        ahead=ahead,
    )


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Wait for a process to end. Popen.wait with a limit sleeps in between, for up to 50 ms too long."""
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an old kernel, now or when Python was built, or no descriptor is left
        process.wait(limit_s)
        return
    try:
        watched = select.poll()
        watched.register(ended, select.POLLIN)
        if not watched.poll(min(limit_s * 1000, _LONGEST_POLL_MS)):
            raise subprocess.TimeoutExpired(process.args, limit_s)
    finally:
        os.close(ended)
    process.wait()


def require_room(ran: Ran) -> None:
    """Raise OSError if a compiler failed because a disk is full, which is not the fault of what it compiled.

    Its message alone proves nothing, since a source can make it print that; and on a full disk there may be no message.
    """
    if ran.exit_code == 0 or ran.expired or (ran.stderr.strip() and _FULL not in ran.stderr):
        return
    if (place := full_disk()) is not None:
        raise OSError(errno.ENOSPC, _FULL, str(place))


def full_disk() -> Path | None:
    """The folder, of those that compilers write to, whose disk has no room for what they may need; None if all have."""
    for place in (Path(tempfile.gettempdir()), resources.cache_place()):
        with contextlib.suppress(FileNotFoundError):
            if shutil.disk_usage(place).free < _LITTLE_BYTES:
                return place
    return None


def _answer(process: subprocess.Popen[bytes], goes_on: bool) -> None:
    """Let a program that waits on standard input continue, or kill it."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended, which its exit code shows
        if goes_on:
            process.stdin.write(b"\n")
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()


def end_all() -> None:
    """Kill the programs of all other threads, because this process is about to end; later ones are killed as well.

    A thread that waits for such a program never returns: a program killed by us must not look like one that failed.
    """
    _ending.set()
    _kill(tuple(_running))


def _end(ended: threading.Event) -> None:
    ended.set()
    _kill([group for group, of in tuple(_running.items()) if ended in of])


def _kill(groups: Iterable[int]) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


@contextlib.contextmanager
def threads(most: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that run programs. It waits for them when it is left, but not after an interruption, because
    they may run a kernel that hangs: then it ends their programs, and those of pools that they have.
    """
    interrupted = threading.Event()
    of = (*work.whose(), interrupted)

    def begin() -> None:
        work.works_for(of)

    pool = ThreadPoolExecutor(most, initializer=begin)
    wait = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        _end(interrupted)
        raise
    finally:
        pool.shutdown(wait, cancel_futures=not wait)


def ends(output: BinaryIO) -> str:
    """The start and end of a file: a checker's report begins with what matters, a crash ends with it."""
    size = output.seek(0, os.SEEK_END)
    output.seek(0)
    text = output.read(2 * _KEPT_BYTES if size <= 2 * _KEPT_BYTES else _KEPT_BYTES)
    if size > 2 * _KEPT_BYTES:
        output.seek(size - _KEPT_BYTES)
        text += f"\n[{size - 2 * _KEPT_BYTES} bytes left out]\n".encode() + output.read()
    return text.decode(errors="replace")
