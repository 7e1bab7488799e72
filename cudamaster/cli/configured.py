"""Options from configuration files: the tables [<command>] and [all] as the defaults of a command's options.

    [all]                       options of all commands that have them
    device = "cpu"

    [optimize]                  of one command; [hgemm.tune] of a command below another
    rounds = 5

What an option is given on the command line comes first, then the environment, the project's file and the user's. In
one file a command's table comes before [all]. Paths are relative to the file's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from cudamaster.core import configuration
from cudamaster.core.configuration import ConfigFile, plain
from cudamaster.core.errors import UsageError

ALL = "all"
_NOT_HERE = {
    "json": "Programs that read the output ask for it.",
    "trust": "Whom to trust is decided for each bundle.",
}

Load = Callable[[str], click.Command | None]


def defaults(name: str, names: Collection[str], load: Load) -> dict[str, Any]:
    """What the files say about the options of the command `name`, by the names of its parameters, as click wants it.

    `names` are those of all commands, and `load` gives one. A group gets such a mapping for each of its commands.
    Raises UsageError for an unknown table or key, a value of a wrong type, and an API key, with file and line.
    """
    found: dict[str, Any] = {}
    command = load(name)
    for file in reversed(configuration.files()):
        _must_be_commands(file, names)
        shared = _table(file, ALL)
        for key, value in shared.items():
            configuration.must_be_allowed(file, key, value, ALL)
            _must_be_someones(file, key, names, load)
        if command is not None:
            _merge(found, _of_command(file, ALL, shared, command, strict=False))
            _merge(found, _of_command(file, name, _table(file, name), command))
    return found


def check(names: Collection[str], load: Load) -> tuple[Path, ...]:
    """The files in effect, after every table of them was read as for its command. Raises as `defaults`."""
    tables = {plain(key) for file in configuration.files() for key, value in file.values.items() if _is_table(value)}
    for name in sorted(tables & set(names)) or [next(iter(names))]:
        defaults(name, names, load)
    return tuple(file.path for file in configuration.files())


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _table(file: ConfigFile, name: str) -> Mapping[str, Any]:
    found = file.values.get(name, {})
    return found if isinstance(found, dict) else {}


def _must_be_commands(file: ConfigFile, names: Collection[str]) -> None:
    for key, value in file.values.items():
        if _is_table(value) and key not in (*names, ALL):
            raise configuration.unknown(file, key, [*names, ALL], "A table is named as a command is.")


def _must_be_someones(file: ConfigFile, key: str, names: Collection[str], load: Load) -> None:
    """Raise UsageError for a key of [all] that is an option of no command."""
    known: set[str] = set()
    for name in names:
        for command in _commands(load(name)):
            known |= set(_options(command))
            if plain(key) in known:
                return
    raise configuration.unknown(file, key, known - set(_NOT_HERE), table=ALL)


def _commands(command: click.Command | None) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        yield from command.commands.values()
    elif command is not None:
        yield command


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their long names, with underscores."""
    return {
        plain(word.removeprefix("--")): option
        for option in command.params
        if isinstance(option, click.Option)
        for word in option.opts
        if word.startswith("--")
    }


def _of_command(
    file: ConfigFile, table: str, given: Mapping[str, Any], command: click.Command, *, strict: bool = True
) -> dict[str, Any]:
    """A table as values of parameters. Unless it is `strict`, options that the command does not have are left out."""
    if isinstance(command, click.Group):
        return _of_group(file, table, given, command, strict=strict)
    known, found = _options(command), {}
    for key, value in given.items():
        configuration.must_hold_no_key(file, key, value, table)
        if (why := _NOT_HERE.get(plain(key))) is not None:
            raise file.refused(key, "is given on the command line alone.", f"Take it out. {why}", table)
        option = known.get(plain(key))
        if option is None:
            if strict:
                raise configuration.unknown(file, key, set(known) - set(_NOT_HERE), table=table)
            continue
        configuration.must_be_allowed(file, key, value, table)
        found[str(option.name)] = _value(file, table, key, value, option, command)
    return found


def _of_group(
    file: ConfigFile, table: str, given: Mapping[str, Any], group: click.Group, *, strict: bool
) -> dict[str, Any]:
    if not strict:
        return {name: _of_command(file, table, given, each, strict=False) for name, each in group.commands.items()}
    for key, value in given.items():
        if key not in group.commands or not _is_table(value):
            names = ", ".join(f"[{table}.{name}]" for name in sorted(group.commands))
            raise file.refused(key, f"is no command below {table}.", f"Its tables are {names}.", table)
    return {key: _of_command(file, f"{table}.{key}", value, group.commands[key]) for key, value in given.items()}


def _value(file: ConfigFile, table: str, key: str, value: Any, option: click.Option, command: click.Command) -> Any:
    """The value as click wants a default. It is converted here, where the file and the line are known."""
    each = value if option.multiple and isinstance(value, list) else [value]
    wanted = _wanted(option)
    for one in each:
        configuration.must_hold_no_key(file, key, one, table)
        if isinstance(one, bool) is not (bool in wanted) or not isinstance(one, wanted):
            words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[wanted[-1]]
            some = f"a list of them, each {words}" if option.multiple else words
            raise file.refused(key, f"is {one!r}.", f"Write {some}.", table)
    if isinstance(option.type, click.Path):
        each = [file.path_of(one) for one in each]
    context = click.Context(command)
    try:
        for one in each:
            option.type.convert(one, option, context)
    except click.UsageError as error:
        fix = f"See `cudamaster {str(command.name) if table == ALL else table.replace('.', ' ')} --help`."
        raise file.refused(key, f"is {value!r}: {error.message}", fix, table) from error
    return each if option.multiple else each[0]


def _wanted(option: click.Option) -> tuple[type, ...]:
    """The types of TOML's values that an option takes, the one to name last."""
    if option.is_flag:
        return (bool,)
    if isinstance(option.type, click.types.IntParamType):
        return (int,)
    if isinstance(option.type, click.types.FloatParamType):
        return (int, float)
    return (str,)


def _merge(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put `more` over what was found before, command by command in a group."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        else:
            found[key] = value


def or_nothing(name: str, names: Collection[str], load: Load) -> dict[str, Any]:
    """As `defaults`, but empty for files that cannot be used: for help, and for the command that says what is wrong."""
    try:
        return defaults(name, names, load)
    except UsageError:
        return {}
