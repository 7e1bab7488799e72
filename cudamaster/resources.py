"""Where the shipped files are: bench/, templates/ and profiles/, in a checkout or inside the installed wheel.

Nothing is ever written below these paths.
"""

import os
from pathlib import Path

import platformdirs

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


def cache() -> Path:
    """Folder for what can be built again: $CUDAMASTER_CACHE, else the user's cache folder. May not exist yet."""
    chosen = os.environ.get("CUDAMASTER_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("cudamaster"))
