"""Runs a command and lets nothing of it live on: when it ends, or when standard input closes, all that it started ends.

A script of its own, which needs nothing but Python: `python keeper.py WORD...`. Whoever started it holds the other end
of its standard input, so that a kill of that process ends the command too. Exits with the command's exit code, with
127 if it cannot be started, and with 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what the command leaves behind becomes a child of ours, in any session
_TO_END_S = 3.0  # between SIGTERM and SIGKILL
_LOOKED_EVERY_S = 0.05
_TRIES = 200


def main(words: list[str]) -> int:
    """Run it to its end."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a handler, which a child does not inherit as it would SIG_IGN
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ))
    except OSError as error:
        sys.stderr.write(f"{words[0]} cannot be started: {error.strerror}\n")
        return 127
    while command.poll() is None:
        if select.select([0], [], [], _LOOKED_EVERY_S)[0]:  # nobody writes to it, so it is closed
            _end(command)
            break
    code = command.wait()
    _end_descendants()
    return code if code >= 0 else 128 - code


def _end(command: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(command.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(_TO_END_S)
    with contextlib.suppress(OSError):
        os.killpg(command.pid, signal.SIGKILL)


def _end_descendants() -> None:
    """Kill what is left; a process that is killed leaves its own children to us."""
    for _ in range(_TRIES):
        children = _children()
        if not children:
            return
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _children() -> list[int]:
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = int(place.name)
            stat = (place / "stat").read_text(encoding="utf-8", errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                found.append(process)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
