"""What nvidia-smi says about the GPUs of this machine.

It takes up to a second while the driver starts, so a command may ask `ahead`, while Python loads its modules.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading

from cudamaster.core import keys

_QUERY = ("name", "uuid", "compute_cap", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory",
          "power.limit", "clocks_event_reasons.active")  # fmt: skip
_LIMIT_S = 60.0
_asking = threading.Lock()


def ahead() -> None:
    """Ask now, in the background."""
    threading.Thread(target=gpus, daemon=True).start()


def gpus() -> tuple[tuple[str, ...], ...]:
    """For each GPU: name, UUID, compute capability, driver, memory, largest clocks of SM and memory, power limit."""
    with _asking:  # the second caller finds the answer
        return _answer()


def now() -> tuple[tuple[str, ...], ...]:
    """What it says now, where `gpus` keeps the first answer."""
    with _asking:
        _answer.cache_clear()
        return _answer()


@functools.cache
def _answer() -> tuple[tuple[str, ...], ...]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    for reasons in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        query = ",".join(reasons if field == _QUERY[-1] else field for field in _QUERY)
        command = [smi, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=keys.for_tools()
            )
        except (OSError, subprocess.TimeoutExpired):
            return ()
        rows = [row.split(", ") for row in done.stdout.splitlines() if row.count(", ") == len(_QUERY) - 1]
        if done.returncode == 0 and rows:
            return tuple(tuple(field.strip() for field in row[:8]) for row in rows)
    return ()
