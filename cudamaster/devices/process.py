"""Runs a program with a time limit and bounded output, and kills its whole process group when the time is up."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudamaster.devices.protocol import Ran

_KEPT_BYTES = 64 * 1024
_LARGEST_FILE = 1 << 30


def run_limited(
    command: Sequence[str],
    limit_s: float,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    held: Sequence[int] = (),
) -> Ran:
    """Run `command` for at most `limit_s` seconds; `stderr` of the result is both streams' last 64 KiB.

    Output goes to a file rather than a pipe, so that a program that prints without end cannot fill our memory; a
    limit on file size bounds that. `held` are descriptors that stay open in the child: a lock held through one is
    held for as long as the child lives, even when we are killed.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            pass_fds=tuple(held),
        )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        expired = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            expired = True
        finally:
            # Also when it ended by itself: what it started must not outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _KEPT_BYTES))
        text = output.read().decode(errors="replace")
    code = process.returncode
    return Ran(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 and not expired else None,
        expired=expired,
        stderr=text,
        seconds=time.monotonic() - started,
    )
