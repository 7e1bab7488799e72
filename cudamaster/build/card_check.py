"""Checks what a task is made of: the card, each baseline's wrapper, the reference's function. Nothing is compiled."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import CardError, Problem, UsageError, nearest
from cudamaster.core.values import Precision
from cudamaster.guards.lexer import Kind, lex
from cudamaster.guards.signature import Signature
from cudamaster.guards.source import check_defined
from cudamaster.tasks import finding, reading, task_suites
from cudamaster.tasks.cards import TaskCard

_IN_PYTHON = "reference"  # the function of a reference in Python, whatever the task


@dataclass(frozen=True)
class Checked:
    """A card as it was named, what was read of it if it can be used, and all that is wrong with its files."""

    given: str
    card: TaskCard | None
    problems: tuple[Problem, ...]


def named(given: str) -> tuple[str, ...]:
    """Cards that are meant by a name, the path of a card, or a folder of tasks, each as `check` takes it.

    A folder may be one of tasks, its tasks/, or one that holds folders of tasks, as the user's own may. Raises
    UsageError for what is none of these, and for a folder without cards.
    """
    place = Path(given)
    if given.endswith(".yaml") or not place.is_dir():
        return (given,)
    found = tuple(str(path) for folder in _with_cards(place) for path in sorted(folder.glob("*.yaml")))
    if not found:
        raise UsageError(f"There is no card in {given}.", "A card is a file NAME.yaml; docs/adding.md shows one.")
    return found


def _with_cards(place: Path) -> list[Path]:
    """The folders whose *.yaml are cards. Raises UsageError for a place without any."""
    if folders := resources.folders_in(place):  # its name says nothing: the user's own is called tasks itself
        return [folder / "tasks" for folder in folders]
    return [place] if place.absolute().name == "tasks" else [resources.task_folder(place) / "tasks"]


def check(given: str) -> Checked:
    """Checks the card of that name or path, and the files that belong to it. Raises UsageError for an unknown one."""
    try:
        card = finding.load(given)
        problems = [*_place(card, given), *_baselines(card), *_reference(card)]
    except CardError as error:  # without problems, it is about the suite
        other = (Problem(given, 1, "", error.reason.rstrip("."), error.fix),)
        return Checked(given, None, error.problems or other)
    return Checked(given, card, tuple(problems))


def _place(card: TaskCard, given: str) -> Iterator[Problem]:
    """The file has the card's name, its suite has it, and no other folder that is found has the name."""
    path = Path(given)
    if not given.endswith(".yaml") or card.shipped:
        return
    if path.stem != card.name:
        yield reading.problem_at(
            path, "name", f"it is {card.name}, and the file has another name", "Make them the same."
        )
        return
    suite = task_suites.of_folder(card.folder)
    if card.name not in suite:
        fix = "It can be used by its path; for use by its name, name it there."
        yield reading.problem_at(
            path, "name", f"{card.folder / task_suites.FILE_NAME} does not have it in `tasks`", fix
        )
    elif card.folder.resolve() in [folder.resolve() for folder in resources.task_folders()]:
        try:
            finding.load(card.name)
        except CardError as error:
            yield from error.problems


def _baselines(card: TaskCard) -> Iterator[Problem]:
    for precision in card.precisions:
        path = card.baseline_path(precision)
        try:
            text = card.baseline(precision)
        except CardError:
            yield _missing(card, f"its baseline in {precision}, {path},", _fix_of_missing(card, precision))
            continue
        if card.is_eager:
            yield from _defined(path, text, "Model", _names_in_python)
            continue
        due = Signature(card.wrapper(precision), card.signature(precision))
        if (refused := check_defined(text, due)) is not None:
            yield Problem(str(path), refused.line or 1, "", refused.reason, refused.fix)


def _fix_of_missing(card: TaskCard, precision: Precision) -> str:
    there = [each for each in card.precisions if each != precision and card.baseline_path(each).is_file()]
    without = f", or leave {precision} out with `precisions: [{', '.join(there)}]`" if there else ""
    what = "a module Model" if card.is_eager else card.declaration(precision, optimized=False)
    return f"Write it, with {what}{without}."


def _reference(card: TaskCard) -> Iterator[Problem]:
    if card.truth == "baseline":
        return
    path = card.reference_path
    function = _IN_PYTHON if card.truth == "python" else card.reference_function
    try:
        text = card.reference()
    except CardError:
        yield _missing(card, f"its reference, {path},", f"Write it, with a function {function}.")
        return
    if card.truth != "python":
        yield from _defined(path, text, function, _called)
    elif wrong := list(_defined(path, text, function, _names_in_python)):
        yield from wrong
    else:
        yield from _parameters(card, path, text)


def _parameters(card: TaskCard, path: Path, text: str) -> Iterator[Problem]:
    """A reference in Python asks for what the card has. One that is not a function of the file itself says nothing."""
    passed = [*card.sizes, *(p.name for p in card.parameters if p.is_read)]
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or node.name != _IN_PYTHON:
            continue
        of = node.args
        for each in of.posonlyargs:
            what = f"{_IN_PYTHON} takes {each.arg} by its place, and is called with names"
            yield Problem(str(path), each.lineno, "", what, "Leave out the / behind it.")
        defaults = zip(of.kwonlyargs, of.kw_defaults, strict=True)
        due = [*of.args[: len(of.args) - len(of.defaults)], *(each for each, default in defaults if default is None)]
        for each in due:
            if each.arg not in passed:
                what = f"{_IN_PYTHON} has a parameter {each.arg}, which is neither an input nor a size of the card"
                fix = nearest(each.arg, passed, f"It gets those that it names of {', '.join(passed)}.")
                yield Problem(str(path), each.lineno, "", what, fix)


def _defined(path: Path, text: str, name: str, names: Callable[[str], list[str]]) -> Iterator[Problem]:
    """A file's text has a name among those that `names` finds in it."""
    try:
        there = names(text)
    except SyntaxError as error:
        yield Problem(str(path), error.lineno or 1, "", f"it is no Python: {error.msg}", "Correct its syntax.")
        return
    if name not in there:
        fix = nearest(name, there, "Write it; docs/adding.md shows one.")
        what = "class" if name == "Model" else "function"
        yield Problem(str(path), 1, "", f"it declares no {what} {name}", fix)


def _called(text: str) -> list[str]:
    """Names before an opening parenthesis in C++, those of its functions among them."""
    tokens = [token for token in lex(text).tokens if token.kind is not Kind.NEWLINE]
    return [one.text for one, after in itertools.pairwise(tokens) if after.text == "("]


def _names_in_python(text: str) -> list[str]:
    """Names that a module defines, in an `if`, `try` or `with` too: functions, classes, and what it imports or assigns.

    Raises SyntaxError.
    """
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.append(name)
                continue  # what it holds is no name of the module
            case ast.Assign(targets=targets):
                found += [each.id for each in targets if isinstance(each, ast.Name)]
            case ast.ImportFrom(names=names):
                found += [each.asname or each.name for each in names]
        waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.excepthandler)]
    return found


def _missing(card: TaskCard, what: str, fix: str) -> Problem:
    return reading.problem_at(Path(card.source), "precisions", f"{what} cannot be read", fix)
