"""docs/reference.md is held to the code: its tables of environment variables and exit codes, and its example file."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cudamaster.cli import commands, compare, configured, main
from cudamaster.cli import report as report_command
from cudamaster.cli import reproduce as reproduce_command
from cudamaster.core import configuration, errors, resources
from cudamaster.core.values import MODEL_ROLES, Role
from cudamaster.models.choose import variable_of

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
# Calls whose arguments name variables: `os.environ.get("CXX")`, `toolkit.find("nvcc", "CUDACXX")`.
_READING = ("get", "find", "setting", "setting_path", "getenv")


def section(title: str) -> str:
    """The text below a heading of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> list[str]:
    """The first cells of the rows of the section's table."""
    return [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| ")][1:]


def variables_in(path: Path) -> Iterator[str]:
    """The names of variables that a module reads: as texts, or through constants of the module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def named(node: ast.expr) -> Iterator[object]:
        for each in ast.walk(node):
            if isinstance(each, ast.Constant):
                yield each.value
            elif isinstance(each, ast.Name):
                yield from constants.get(loops.get(each.id, each.id), [])

    loops = {
        each.target.id: each.iter.id
        for each in ast.walk(tree)
        if isinstance(each, ast.comprehension) and isinstance(each.target, ast.Name) and isinstance(each.iter, ast.Name)
    }
    for node in ast.walk(tree):
        found: list[object] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("CUDAMASTER_"):
            found = [node.value]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            found = list(named(node.slice))
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            found = list(named(node.left))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READING:
            about = ast.unparse(node.func.value)
            if about in ("os.environ", "environ", "os", "toolkit", "configuration", "level"):
                found = [value for argument in node.args for value in named(argument)]
        yield from (value for value in found if isinstance(value, str) and _NAME.fullmatch(value))


def variables_of_the_code() -> set[str]:
    """All that the program reads, in Python and in C++."""
    package = resources.package()
    found = {name for path in package.rglob("*.py") for name in variables_in(path)}
    for folder in (package / "devices", ROOT / "bench"):
        for path in (each for end in ("*.cpp", "*.h", "*.cu") for each in folder.rglob(end)):
            found |= set(re.findall(r'getenv\("(\w+)"\)', path.read_text(encoding="utf-8")))
    return found | {variable_of(role) for role in (*MODEL_ROLES, Role.DESCRIBER)}


def test_every_variable_is_in_the_table_and_the_other_way_round() -> None:
    listed = {name for cell in first_cells("Environment variables") for name in re.findall(r"`(\w+)`", cell)}
    read = variables_of_the_code()
    assert {"CUDACXX", "CUDA_HOME", "CUTLASS_PATH", "COLUMNS", "OPENAI_API_KEY", "CUDAMASTER_CPU_TRACE"} <= read
    assert sorted(read - listed) == [], "read, and not in docs/reference.md"
    shared = {"NO_PROXY", "LD_LIBRARY_PATH"}  # read by LiteLLM; handed on
    assert sorted(listed - read - shared) == [], "in docs/reference.md, and not read"


def kinds(of: type[errors.CudaMasterError] = errors.CudaMasterError) -> Iterator[type[errors.CudaMasterError]]:
    """The kinds of error."""
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_exit_code_is_in_the_table_and_the_other_way_round() -> None:
    rows = [line.split("|")[1:4] for line in section("Exit codes").splitlines() if re.match(r"\| \d", line)]
    listed = {int(code): set(re.findall(r"`(\w+)`", kind)) for code, _, kind in rows}
    of_kinds: dict[int, set[str]] = {}
    for kind in (each for each in kinds() if each.__module__ == errors.__name__):  # not those of one place
        of_kinds.setdefault(kind.exit_code, set()).add(kind.__name__)
    assert {code: names for code, names in listed.items() if names} == of_kinds
    commands_of_words = (compare, report_command, reproduce_command)
    results = {code for each in commands_of_words for code in each.EXIT_CODES.values()}
    assert set(listed) == {0, 1, 130, 141, *of_kinds, *results}
    told = main.epilog or ""
    assert all(re.search(rf"\b{code}\b  ", told) for code in of_kinds), "cudamaster --help names them too"


def test_the_example_of_a_file_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands on the page, for all the commands that it names."""
    block = re.findall(r"\n\n((?:    .*\n|\n)+)", section("Configuration files"))[0]
    file = tmp_path / "cudamaster.toml"
    file.write_text("\n".join(line.removeprefix("    ") for line in block.splitlines()), encoding="utf-8")
    assert set(tomllib.loads(file.read_text())) == {"task-folders", "gpu-model", "all", "optimize", "suite", "hgemm"}
    monkeypatch.setenv("CUDAMASTER_PROJECT", str(file))
    assert configured.check(*commands()) == (file,)
    assert configured.defaults("optimize", *commands()) == {"device": "cpu", "rounds": 5, "model": "openai/o4-mini"}
    assert configured.defaults("hgemm", *commands())["tune"] == {"sample": 100}
    assert configuration.task_folders() == (tmp_path / "tasks-of-mine",)


def test_all_options_can_be_kept_in_a_file() -> None:
    """Each has a long name of its own, by which the file names it."""
    names, load = commands()
    context = click.Context(main)
    for name in names:
        command = load(name)
        assert command is not None
        for each in command.commands.values() if isinstance(command, click.Group) else [command]:
            options = [option for option in each.get_params(context) if isinstance(option, click.Option)]
            assert all(any(word.startswith("--") for word in option.opts) for option in options), each.name
