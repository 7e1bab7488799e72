"""Where the shipped files are: bench/, templates/ and profiles/, in a checkout or inside the installed wheel.

Nothing is ever written below these paths. The cache is another matter: what is written there can be built again.
"""

import errno
import fcntl
import functools
import os
import stat
import tempfile
from pathlib import Path

import platformdirs

from cudamaster.core.errors import DeviceError

CACHE = "CUDAMASTER_CACHE"
_NOT_IN_PATHS = '\n\r"\\$`'  # nvcc hands its paths to a shell

_PACKAGE = Path(__file__).resolve().parents[1]
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
    """The Python package itself: agents/prompts/, playbook/, view/pages/."""
    return _PACKAGE


def calibrations() -> Path:
    """Folder for a user's own calibrations: $CUDAMASTER_CONFIG, else the user's configuration. May not exist yet."""
    chosen = os.environ.get("CUDAMASTER_CONFIG")
    try:
        folder = Path(chosen) if chosen else Path(platformdirs.user_config_dir("cudamaster"))
    except RuntimeError as error:
        raise DeviceError("Nobody knows the home folder of this user.", "Set HOME, or CUDAMASTER_CONFIG.") from error
    return folder / "calibrations"


def cache_place() -> Path:
    """Where the cache is to be: $CUDAMASTER_CACHE, else the user's cache folder. It may be no folder, or unusable.

    A ~ is the user's home also where no shell has seen it. Where nobody knows the home it stays, and is no folder.
    """
    chosen = os.environ.get(CACHE)
    try:
        place = os.path.expanduser(chosen) if chosen else platformdirs.user_cache_dir("cudamaster")  # noqa: PTH111
    except RuntimeError:
        place = "~/.cache/cudamaster"
    return Path(place) if place.startswith("~") else Path(place).absolute()


def cache() -> Path:
    """Folder for what can be built again, which is there, and has files made and locked. Raises DeviceError."""
    place = cache_place()
    _must_be_usable(place)
    return place


@functools.cache
def _must_be_usable(place: Path) -> None:
    """Tried once in a process: what becomes of the folder later shows where it is used."""
    fix = f"Mend that, or set {CACHE} to a folder that can be written."
    if os.environ.get(CACHE):
        fix = f"Set {CACHE} to a folder that can be written, or unset it for the user's own cache folder."
    if (why := _why_no_place(place)) is not None:
        raise DeviceError(f"The cache {place} cannot be used: {why}.", fix)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"tried")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise DeviceError(f"The cache {place} cannot be used: {_why_unusable(place, error)}.", fix) from error


def _why_no_place(place: Path) -> str | None:
    """What is wrong with the path by itself."""
    if not place.is_absolute():
        return "nobody knows the home folder that it begins with"
    if any(sign in str(place) for sign in _NOT_IN_PATHS):
        return 'a path with a line break, or one of " \\ $ `, is more than compilers can be told'
    return None


def _why_unusable(place: Path, error: OSError) -> str:
    """Which part of the path is in the way; where none is, what the system says of the folder."""
    for part in (*reversed(place.parents), place):
        try:
            if not stat.S_ISDIR(part.stat().st_mode):
                return f"{part} is no folder"
        except FileNotFoundError:
            if part.is_symlink():
                return f"{part} is a link to {part.readlink()}, which is not there"
            return f"{part} cannot be made: {error.strerror or error}"
        except OSError as other:
            if other.errno == errno.ELOOP:
                return f"{part} is a link to {part.readlink()}, in a circle"
            return f"{part} cannot be looked at: {other.strerror or other}"
    return f"no file can be made and locked there: {error.strerror or error}"
