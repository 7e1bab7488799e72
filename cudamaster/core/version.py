"""Which CUDAMaster this is: the version, and the commit that it was made of."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping

import cudamaster
from cudamaster.core import keys, resources

# Written into a wheel by hatch_build.py.
_BAKED = "commit"
_LIMIT_S = 10.0
_DESCRIBE = ("describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+dirty")


def commit() -> str | None:
    """The commit of a checkout, or that of which a wheel was built; None where nobody knows.

    Twelve digits, with "+dirty" behind where tracked files are not as committed.
    """
    baked = resources.root() / _BAKED
    if baked.is_file():
        return baked.read_text(encoding="utf-8").strip() or None
    if not (resources.root() / ".git").exists():
        return None
    command = ["git", "-C", str(resources.root()), *_DESCRIBE]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=keys.for_tools()
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def program(*, with_commit: bool = True) -> Mapping[str, str]:
    """The versions of this program and of Python, and the commit where it is known, for what is recorded.

    In a checkout git is asked for the commit.
    """
    known = commit() if with_commit else None
    of_commit = {} if known is None else {"commit": known}
    return {"cudamaster": cudamaster.__version__, **of_commit, "python": platform.python_version()}
