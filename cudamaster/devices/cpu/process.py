"""Runs a program with a time limit, keeping a bounded part of what it writes to stderr."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from cudamaster.devices.protocol import Ran
from cudamaster.errors import DeviceError

_HEAD_BYTES = 32 * 1024
_TAIL_BYTES = 32 * 1024


class _Bounded:
    """The first and the last bytes of a stream; what lies between is dropped, and said to be."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._head = b""
        self._tail = b""
        self._dropped = 0
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._stream.fileno(), 65536):
            room = _HEAD_BYTES - len(self._head)
            self._head += chunk[:room] if room > 0 else b""
            self._tail += chunk[max(room, 0) :]
            excess = len(self._tail) - _TAIL_BYTES
            if excess > 0:
                self._dropped += excess
                self._tail = self._tail[excess:]

    def text(self) -> str:
        gap = f"\n[{self._dropped} bytes left out]\n".encode() if self._dropped else b""
        return (self._head + gap + self._tail).decode(errors="replace")


def run_bounded(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Ran:
    """Run `command` in a process group of its own; at `limit_s` seconds the whole group is killed.

    DeviceError where the program cannot be started.
    """
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise DeviceError(f"{command[0]} cannot be started: {error}.", "Build it again.") from error
    assert process.stderr is not None
    bounded = _Bounded(process.stderr)  # type: ignore[arg-type]
    expired = False
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        expired = True
    finally:
        # Children may outlive the program, and would hold the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = time.monotonic() - start
    bounded.thread.join(timeout=5)
    process.stderr.close()
    code = process.returncode
    return Ran(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 and not expired else None,
        expired=expired,
        stderr=bounded.text(),
        seconds=seconds,
    )
