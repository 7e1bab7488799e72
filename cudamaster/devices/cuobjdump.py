"""What cuobjdump lists of an object file or executable: the machine code for GPUs that is in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cudamaster.core import keys
from cudamaster.core.tool_logs import without_folders
from cudamaster.devices import toolkit

NOT_INSTALLED = (
    f"cuobjdump is not installed; it comes with the CUDA toolkit, or with `{toolkit.EXTRA}`. Put it on the PATH, "
    "or set CUDAMASTER_CUOBJDUMP"
)
_LIMIT_S = 60.0


class NotListed(Exception):
    """Why there is no listing, in words."""


def find() -> Path | None:
    """cuobjdump of $CUDAMASTER_CUOBJDUMP, the PATH, a toolkit or NVIDIA's package; None when there is none."""
    return toolkit.find("cuobjdump", "CUDAMASTER_CUOBJDUMP")


def listing(program: Path) -> str:
    """The instructions of all kernels, as `cuobjdump -sass` prints them. Raises NotListed."""
    cuobjdump = find()
    if cuobjdump is None:
        raise NotListed(NOT_INSTALLED)
    command = [str(cuobjdump), "-sass", str(program)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
            env=keys.for_tools(),
        )
    except subprocess.TimeoutExpired:
        raise NotListed(f"cuobjdump was stopped after {_LIMIT_S:g} s") from None
    except OSError as error:
        raise NotListed(f"cuobjdump cannot be started: {error.strerror}") from error
    # nvdisasm missing is an error too: what was printed before it is a part.
    if done.returncode != 0:
        said = without_folders(done.stderr).strip().splitlines() or [f": exit code {done.returncode}"]
        raise NotListed(f"cuobjdump failed: {said[-1].partition(':')[2].strip()}")
    return done.stdout
