"""The places of the shipped files: bench/, templates/ and profiles/, in a checkout or inside the installed wheel.

Nothing is written below these paths. Only the cache is written to; everything in it can be built again.
"""

import errno
import fcntl
import functools
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs

from cudamaster.core import configuration
from cudamaster.core.errors import DeviceError, UsageError

CACHE = "CUDAMASTER_CACHE"
DATA = "CUDAMASTER_DATA"
TASKS = "CUDAMASTER_TASKS"
_NOT_IN_PATHS = '\n\r"\\$`'  # nvcc hands its paths to a shell
_FEW = 5  # folders that an error names

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "_data"


def root() -> Path:
    """Folder that holds bench/, templates/ and profiles/."""
    return _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent


def bench() -> Path:
    """The benchmark: tasks/, fp32/, bf16/, reference/, include/."""
    return root() / "bench"


def task_folders() -> tuple[Path, ...]:
    """Folders of a user's own tasks, each laid out as bench/, in the order in which they are named; none twice.

    First those that $CUDAMASTER_TASKS names, with a colon between them, then those of the configuration files, then
    `user_tasks` itself and the folders in it, as far as they hold tasks. Raises as `task_folder` for one that is named
    and is none, and UsageError for a configuration file that cannot be used.
    """
    named = [task_folder(place) for place in os.environ.get(TASKS, "").split(":") if place]
    configured = [task_folder(place) for place in configuration.task_folders()]
    found: dict[Path, Path] = {}
    users: list[Path] = []
    with suppress(DeviceError):  # a user without a home folder has none there
        users = folders_in(user_tasks())
    for folder in (*named, *configured, *users):
        found.setdefault(folder.resolve(), folder)
    return tuple(found.values())


def user_tasks() -> Path:
    """Where a user's own tasks lie if no other place is named. May not exist.

    It is tasks/ in $CUDAMASTER_DATA, else in the user's data folder.
    """
    chosen = os.environ.get(DATA)
    try:
        folder = Path(os.path.expanduser(chosen) if chosen else platformdirs.user_data_dir("cudamaster"))  # noqa: PTH111
    except RuntimeError as error:
        raise DeviceError("This user's home folder is unknown.", f"Set HOME, or {DATA}.") from error
    return folder.absolute() / "tasks"


def task_folder(place: str | Path) -> Path:
    """The absolute path of a folder of tasks. Raises UsageError for what is none, or cannot be named to compilers."""
    absolute = Path(os.path.expanduser(place)).absolute()  # noqa: PTH111
    fix = (
        f"Name a folder with tasks/, fp32/, bf16/ and reference/, or take this one out of {TASKS} or of the "
        "configuration file."
    )
    if (why := _why_no_place(absolute)) is not None:
        raise UsageError(f"The tasks in {absolute} cannot be used: {why}.", fix)
    if not _has_tasks(absolute) and (inside := folders_in(absolute)):
        more = ", ..." if len(inside) > _FEW else ""
        raise UsageError(
            f"{absolute} is no folder of tasks, but holds {len(inside)} of them.",
            f"Name one of them: {', '.join(map(str, inside[:_FEW]))}{more}.",
        )
    if not _has_tasks(absolute):
        raise UsageError(f"There are no tasks in {absolute}: it has no folder tasks/.", fix)
    return absolute


def folders_in(place: Path) -> list[Path]:
    """The place if it is a folder of tasks, and those directly in it that are."""
    try:
        inside = sorted(each for each in place.iterdir() if each.name != "tasks") if place.is_dir() else []
    except OSError:  # nobody may look there
        inside = []
    return [each for each in (place, *inside) if _has_tasks(each)]


def _has_tasks(place: Path) -> bool:
    try:
        return (place / "tasks").is_dir()
    except OSError:  # a name too long, or nobody may look there
        return False


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
    try:
        return configuration.user_folder() / "calibrations"
    except RuntimeError as error:
        raise DeviceError("This user's home folder is unknown.", "Set HOME, or CUDAMASTER_CONFIG.") from error


def cache_place() -> Path:
    """The cache's path: $CUDAMASTER_CACHE, else the configuration's, else the user's. It may be missing or unusable.

    A ~ means the user's home, even if no shell expanded it. If the home is unknown, the ~ stays and is not a folder.
    """
    chosen = configuration.setting_path("cache", CACHE)
    try:
        place = os.path.expanduser(chosen) if chosen else platformdirs.user_cache_dir("cudamaster")  # noqa: PTH111
    except RuntimeError:
        place = "~/.cache/cudamaster"
    return Path(place) if place.startswith("~") else Path(place).absolute()


def cache() -> Path:
    """The cache folder, made if needed, and tested by making and locking a file. Raises DeviceError.

    Also for a folder of temporary files whose name compilers and the judge cannot read.
    """
    place = cache_place()
    _must_be_usable(place)
    with suppress(FileNotFoundError):  # there is none, which whoever needs it says
        temporary = Path(tempfile.gettempdir())
        if (why := _why_no_place(temporary)) is not None:
            what = f"The folder for temporary files, {str(temporary)!r}, cannot be used: {why}."
            raise DeviceError(what, "Set TMPDIR to another folder.")
    return place


@functools.cache
def _must_be_usable(place: Path) -> None:
    """Tested once in a process; later trouble with the folder shows where it is used."""
    fix = f"Fix that, or set {CACHE} to a folder that can be written."
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
        return 'a path with a line break, or one of " \\ $ `, cannot be passed to compilers'
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
