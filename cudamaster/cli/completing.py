"""What a shell completes: names of tasks and strategies, and run folders. Choices and options are known to click.

Nothing heavy is imported: a shell asks at every press of the key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cudamaster.core import resources
from cudamaster.core.errors import CudaMasterError

PROGRAM = "cudamaster"
VARIABLE = "_CUDAMASTER_COMPLETE"  # set by the script in the shell
_RUNS = Path("runs")
_MANIFESTS = ("run.json", "suite.json")

Completer = Callable[[str], list[CompletionItem]]


def attach(command: click.Command) -> click.Command:
    """The command, whose parameters complete what this module knows; only where a shell asks."""
    if VARIABLE in os.environ:
        for parameter in command.params:
            if "--tasks" in parameter.opts:
                parameter.shell_complete = partial(_asked, _tasks)  # type: ignore[method-assign]
            known = _ARGUMENTS if isinstance(parameter, click.Argument) else _OPTIONS
            if (completer := known.get(str(parameter.name))) is not None and not isinstance(command, click.Group):
                asked = partial(_asked, completer)
                parameter.shell_complete = asked  # type: ignore[method-assign]
    return command


def _asked(completer: Completer, _context: click.Context, incomplete: str) -> list[CompletionItem]:
    return completer(incomplete)


def _tasks(incomplete: str) -> list[CompletionItem]:
    return _beginning(incomplete, sorted(_names()))


def _names() -> set[str]:
    from cudamaster.tasks import finding

    names = {"hgemm"} | {path.stem for path in (resources.bench() / "tasks").glob("*.yaml")}
    with suppress(CudaMasterError):  # a command says so
        names.update(finding.own_names())
    return names


def _cards(incomplete: str) -> list[CompletionItem]:
    """Tasks by name; where none begins so, the files that the shell knows."""
    return _tasks(incomplete) or [CompletionItem(incomplete, type="file")]


def _suites(incomplete: str) -> list[CompletionItem]:
    """Suites by name; where none begins so, folders."""
    from cudamaster.tasks import task_suites

    names: list[str] = []
    with suppress(CudaMasterError):
        names = [suite.name for suite in task_suites.every()]
    return _beginning(incomplete, names) or [CompletionItem(incomplete, type="dir")]


def _strategies(incomplete: str) -> list[CompletionItem]:
    from cudamaster.strategies.registry import STRATEGIES

    return _beginning(incomplete, STRATEGIES)


def _runs(incomplete: str) -> list[CompletionItem]:
    """Runs and suites in runs/, the newest first; where none begins so, whatever folders the shell knows."""
    try:
        known = [path for path in _RUNS.iterdir() if any((path / name).is_file() for name in _MANIFESTS)]
        known.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        known = []
    return _beginning(incomplete, map(str, known)) or [CompletionItem(incomplete, type="dir")]


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


# By the names of parameters, which mean the same in all commands.
_RUN_NAMES = ("runs", "results", "resumed", "replay", "replay_models", "run", "result")
_ARGUMENTS: dict[str, Completer] = {
    **dict.fromkeys(("task", "tasks", "name"), _tasks),
    **dict.fromkeys(_RUN_NAMES, _runs),
    "sources": _runs,
    "cards": _cards,
}
_OPTIONS: dict[str, Completer] = {
    **dict.fromkeys(_RUN_NAMES, _runs),
    "of": _suites,
    "strategy": _strategies,
}
