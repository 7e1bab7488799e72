"""Configuration files: what a user would type each time, in TOML.

    cudamaster.toml     of a project, in the current folder or the nearest above it that has one
    config.toml         of a user, in their configuration folder ($CUDAMASTER_CONFIG)

The environment comes before both, and the project's file before the user's. Here are the files and their settings at
the top (`SETTINGS`); cli/configured.py turns their tables into options of commands.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from cudamaster.core import keys
from cudamaster.core.errors import UsageError, nearest

FOLDER = "CUDAMASTER_CONFIG"
PROJECT = "CUDAMASTER_PROJECT"
PROJECT_FILE, USER_FILE = "cudamaster.toml", "config.toml"
TASKS = "task-folders"  # `tasks` is the table of a command
# Settings that are no command's, by the name that they have in a file.
SETTINGS = ("cache", "cache-limit", "gpu-model", TASKS)
# A project's file may come with somebody else's code: what it may not say, and the variable or option that says it.
_OF_USER = {
    "cache": ("names a folder in which old files are removed", "CUDAMASTER_CACHE"),
    "cache_limit": ("says which of your files are removed", "CUDAMASTER_CACHE_LIMIT"),
    "base_url": ("is where API keys are sent", "CUDAMASTER_BASE_URL"),
    "python": ("is a program that is run", "CUDAMASTER_PYTHON"),
    "agent_command": ("is a program that is run", "--agent-command"),
    "ray": ("is a cluster, whose owner can run programs here", "--ray"),
}
_AGENT = re.compile(r"\s*command\s*=")  # the same, as an option of the strategy


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file in effect. `values` is what TOML makes of its `text`."""

    path: Path
    text: str
    values: Mapping[str, Any]
    of_project: bool

    def where(self, key: str, table: str = "") -> str:
        """The file, and the line of a key of one of its tables as far as it can be found."""
        number = next((number for number, found in _keys(self.text) if found == (table, plain(key))), None)
        return f"{self.path}{'' if number is None else f', line {number}'}"

    def path_of(self, value: str) -> str:
        """A path in the file: it is relative to the file's folder, and may begin with a ~."""
        return str(self.path.parent / os.path.expanduser(value))  # noqa: PTH111

    def refused(self, key: str, reason: str, fix: str, table: str = "") -> UsageError:
        """The error for one of its keys."""
        inside = f" in [{table}]" if table else ""
        return UsageError(f"{self.where(key, table)}: {key}{inside} {reason}", fix)


def plain(key: str) -> str:
    """A key with underscores, whichever way it was written."""
    return key.replace("-", "_")


def user_folder() -> Path:
    """The user's configuration folder: $CUDAMASTER_CONFIG, else the system's. May not exist. Raises RuntimeError.

    That is where nobody knows the home folder.
    """
    chosen = os.environ.get(FOLDER)
    return Path(chosen) if chosen else Path(platformdirs.user_config_dir("cudamaster"))


def user_file() -> Path | None:
    """Where the user's file is, or would be; None where nobody knows the home folder."""
    try:
        return user_folder().absolute() / USER_FILE
    except RuntimeError:
        return None


def project_file() -> Path | None:
    """The project's file: what $CUDAMASTER_PROJECT names (nothing where it is empty), else the nearest above us.

    One that everyone could have put there, in /tmp say, is passed by. Raises UsageError where the named one is not
    there.
    """
    named = os.environ.get(PROJECT)
    if named is not None:
        path = Path(os.path.expanduser(named)).absolute()  # noqa: PTH111
        if named and not path.is_file():
            raise UsageError(f"{PROJECT} names {path}, and there is no such file.", "Name a file, or unset it.")
        return path if named else None
    try:
        here = Path.cwd()
    except OSError:  # the current folder was removed
        return None
    for folder in (here, *here.parents):
        path = folder / PROJECT_FILE
        if path.is_file() and not folder.stat().st_mode & stat.S_IWOTH:
            return path
    return None


def files() -> tuple[ConfigFile, ...]:
    """The files in effect: the project's, then the user's. Raises UsageError for one that cannot be used."""
    found = []
    for path, of_project in ((project_file(), True), (user_file(), False)):
        if path is not None and path.is_file():
            about = path.stat()
            found.append(_read(path, about.st_mtime_ns, about.st_size, of_project))
    return tuple(found)


def setting(name: str, variable: str) -> str | None:
    """One of `SETTINGS` that is a text: $`variable` where it is set, else from the files. Raises as `files`."""
    if given := os.environ.get(variable):
        return given
    return next((str(file.values[key]) for file in files() for key in file.values if plain(key) == plain(name)), None)


def setting_path(name: str, variable: str) -> str | None:
    """The same of one that is a path, in a file relative to the file's folder."""
    if given := os.environ.get(variable):
        return given
    return next((file.path_of(file.values[name]) for file in files() if name in file.values), None)


def task_folders() -> tuple[Path, ...]:
    """The folders of tasks that the files name, the project's first, as absolute paths. Nothing is tested.

    Raises as `files`.
    """
    return tuple(
        Path(file.path_of(place)).absolute()
        for file in files()
        for key, places in file.values.items()
        if plain(key) == plain(TASKS)
        for place in places
    )


def must_hold_no_key(file: ConfigFile, key: str, value: object, table: str = "") -> None:
    """Raise UsageError for what looks like a model's key. The message does not repeat it."""
    if isinstance(value, str) and keys.looks_like_one(value):
        fix = "Take it out, and export it in the environment, e.g. as OPENAI_API_KEY: files are copied and committed."
        raise file.refused(key, "holds what looks like an API key.", fix, table)


def must_be_allowed(file: ConfigFile, key: str, value: object, table: str = "") -> None:
    """Raise UsageError for what a project's file may not say, being perhaps somebody else's."""
    if not file.of_project:
        return
    why, instead = _OF_USER.get(plain(key), ("", ""))
    if plain(key) == "set" and any(_AGENT.match(str(one)) for one in (value if isinstance(value, list) else [value])):
        why, instead = _OF_USER["agent_command"]
    if plain(key).endswith("model") and isinstance(value, str) and "://" in value:
        why, instead = "holds an address, where API keys would be sent", f"CUDAMASTER_{plain(key).upper()}"
    if why:
        give = f"give {instead} on the command line" if instead.startswith("-") else f"set {instead}"
        fix = f"Put it into your own file, {user_file()}, or {give}."
        raise file.refused(key, f"{why}, and a project may not say that.", fix, table)


def unknown(file: ConfigFile, key: str, known: Collection[str], more: str = "", table: str = "") -> UsageError:
    """The error for a key that nobody knows, `more` being what else to do; a secret is told where secrets belong."""
    if keys.names_a_secret(key):
        fix = "Take it out, and export the key in the environment, e.g. as OPENAI_API_KEY: LiteLLM reads it there."
        return file.refused(key, "is no setting: API keys are not kept in configuration files.", fix, table)
    names = sorted(name.replace("_", "-") for name in known)
    fix = nearest(key.replace("_", "-"), names, f"Known are {', '.join(names)}.")
    return file.refused(key, "is no setting.", f"{fix} {more}".strip(), table)


@lru_cache(maxsize=16)
def _read(path: Path, _changed: int, _size: int, of_project: bool) -> ConfigFile:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give access, or remove it.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.", "Write it as TOML.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Mend that line; https://toml.io shows the form.") from error
    file = ConfigFile(path, text, values, of_project)
    for key, value in values.items():
        _must_be_setting(file, key, value)
    return file


def _must_be_setting(file: ConfigFile, key: str, value: object) -> None:
    """Raise UsageError for what stands at the top of a file and is neither a table nor a setting that can be used."""
    must_hold_no_key(file, key, value)
    if plain(key) == plain(TASKS):
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise file.refused(key, "is not a list of folders.", f'Write {key} = ["folder"], say.')
    elif plain(key) in map(plain, SETTINGS):
        if not isinstance(value, str) or not value:
            raise file.refused(key, "is not a text.", f'Write {key} = "...".')
        must_be_allowed(file, key, value)
    elif not isinstance(value, dict):
        raise unknown(file, key, SETTINGS, "Options of commands stand below a [command] or [all].")


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*([\w."' -]+?)\s*=""")


def _keys(text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """The line of each key, with its table; also of keys that name their table with a dot."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _unquoted(header[1])
            *above, last = table.split(".")
            yield number, (".".join(above), plain(last))
        elif found := _KEY.match(line):
            *above, last = _unquoted(found[1]).split(".")
            yield number, (".".join([*([table] if table else []), *above]), plain(last))


def _unquoted(name: str) -> str:
    return re.sub(r"[\"'\s]", "", name)
