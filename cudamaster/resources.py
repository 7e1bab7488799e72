"""Where the shipped files are: bench/, templates/ and profiles/, in a checkout or inside the installed wheel.

Nothing is ever written below these paths. The cache is another matter: what is written there can be built again.
"""

import fcntl
import functools
import os
import tempfile
from pathlib import Path

import platformdirs

from cudamaster.errors import DeviceError

CACHE = "CUDAMASTER_CACHE"

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = _PACKAGE / "_data"


def root() -> Path:
    """Folder that holds bench/, templates/ and profiles/."""
    return _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent


def bench() -> Path:
    """The benchmark: tasks/, fp32/, bf16/, reference/, include/."""
    return root() / "bench"


def templates() -> Path:
    """Jinja templates of the harness."""
    return root() / "templates"


def profiles() -> Path:
    """Thresholds of the profile filter."""
    return root() / "profiles"


def package() -> Path:
    """The Python package itself: prompts/, playbook/, devices/."""
    return _PACKAGE


def calibrations() -> Path:
    """Folder for a user's own calibrations: $CUDAMASTER_CONFIG, else the user's configuration. May not exist yet."""
    chosen = os.environ.get("CUDAMASTER_CONFIG")
    folder = Path(chosen) if chosen else Path(platformdirs.user_config_dir("cudamaster"))
    return folder / "calibrations"


def cache_place() -> Path:
    """Where the cache is to be: $CUDAMASTER_CACHE, else the user's cache folder. It may be no folder, or unusable."""
    chosen = os.environ.get(CACHE)
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("cudamaster"))


def cache() -> Path:
    """Folder for what can be built again, which is there, and has files made and locked. Raises DeviceError."""
    place = cache_place()
    _must_be_usable(place)
    return place


@functools.cache
def _must_be_usable(place: Path) -> None:
    """Tried once in a process: what becomes of the folder later shows where it is used."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"tried")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        fix = f"Mend that, or set {CACHE} to a folder that can be written."
        if os.environ.get(CACHE):
            fix = f"Set {CACHE} to a folder that can be written, or unset it for the user's own cache folder."
        raise DeviceError(f"The cache {place} cannot be used: {_why_unusable(place, error)}.", fix) from error


def _why_unusable(place: Path, error: OSError) -> str:
    """Which part of the path is in the way; where none is, what the system says of the folder."""
    for part in (*reversed(place.parents), place):
        if part.is_symlink() and not part.exists():
            return f"{part} is a link to {part.readlink()}, which is not there"
        if part.exists() and not part.is_dir():
            return f"{part} is no folder"
        if not part.exists():
            return f"{part} cannot be made: {error.strerror or error}"
    return f"no file can be made and locked there: {error.strerror or error}"
