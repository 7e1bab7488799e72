"""The package keeps its layers: which modules may import which, which may write files, and which may import LiteLLM."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import cudamaster

PACKAGE = Path(cudamaster.__file__).parent

# The packages in their order, and what each may import beside itself and core. `cli` may import everything.
PACKAGES: dict[str, set[str]] = {
    "core": set(),
    "guards": set(),
    "tasks": {"guards"},
    "devices": {"guards"},
    "build": {"tasks", "guards", "devices"},
    "kernelbench": {"tasks", "devices", "build"},
    "judging": {"tasks", "devices", "build"},
    "faults": {"guards", "devices", "build", "judging"},
    "profiling": {"devices"},
    "modelling": {"tasks", "devices", "build", "profiling"},
    "workbench": {"tasks", "devices", "build", "judging", "faults", "profiling", "modelling"},
    "vendor": {"tasks", "devices", "workbench"},
    "audit": {"tasks", "devices", "workbench"},
    "cluster": {"tasks", "devices", "build", "profiling", "modelling", "workbench", "audit"},
    "making": {"tasks", "guards", "devices", "build"},
    "models": set(),
    "families": {"tasks", "models"},
    "agents": {"guards", "models"},
    "strategies": {"models", "agents"},
    "outside": {"guards", "models", "agents", "strategies"},
    "runs": {
        "tasks",
        "devices",
        "profiling",
        "workbench",
        "cluster",
        "models",
        "families",
        "agents",
        "strategies",
        "outside",
    },
    "bundles": {"tasks", "devices", "build", "judging", "runs"},
    "view": {"runs"},
    "suites": {"tasks", "guards", "runs", "strategies"},
    "report": {"tasks", "profiling", "modelling", "vendor", "models", "strategies", "runs", "view", "suites"},
    "hgemm": {"tasks", "devices", "modelling", "vendor", "families", "report", "view"},
    "library": {
        "tasks",
        "devices",
        "guards",
        "judging",
        "faults",
        "profiling",
        "workbench",
        "cluster",
        "models",
        "agents",
        "strategies",
        "outside",
        "runs",
        "bundles",
    },
    "serving": {"tasks", "guards", "devices", "judging", "workbench", "agents", "strategies", "library"},
    "training": {
        "tasks",
        "guards",
        "devices",
        "workbench",
        "audit",
        "cluster",
        "models",
        "agents",
        "strategies",
        "runs",
        "bundles",
        "suites",
        "report",
    },
}
# Modules that may import less than their package may; the longest prefix counts.
NARROWER: dict[str, set[str]] = {
    "models": {"models", "core.values", "core.errors", "core.keys", "core.resources"},
    "models.protocol": {"core.values"},
    "models.prefix": {"models.protocol"},
    "models.metered": {"models.protocol", "core.values"},
    "agents": {"agents", "models.protocol", "guards", "core.values"},
    "agents.prompts": set(),
    "strategies": {
        "strategies",
        "agents",
        "models.protocol",
        "models.metered",
        "core.values",
        "core.errors",
        "core.speed",
        "core.likelihood",
        "core.modelled",
    },
    "runs.record": {"runs.budget", "models.protocol", "core"},
    "runs.folder": {"runs.record", "runs.budget", "models.protocol", "core"},
    "runs.recording": {"runs.folder", "runs.record", "runs.spending", "models.protocol", "strategies.protocol", "core"},
    "report.data": {"core"},
    "report.numbers": {"report.data", "core"},
    "families.config": {"tasks.hgemm"},
    "hgemm.table": {"tasks.hgemm", "families.config", "core"},
    "hgemm.statistics": {"hgemm.table", "tasks.hgemm"},
}
# The half of the package that builds and judges knows nothing of the half that searches; runs/ knows both.
SEARCH = {"agents", "models", "families", "strategies", "outside", "runs", "view", "suites", "report"}
BENCH = {"tasks", "guards", "devices", "build", "kernelbench", "judging", "faults", "profiling", "modelling",
         "workbench", "vendor", "audit", "cluster", "making"}  # fmt: skip
WRITING = {
    "write_text",
    "write_bytes",
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "touch",
    "rmtree",
    "symlink_to",
}
# What only one package imports, from an extra: the distribution of that name, and what it serves with.
EXTRAS: dict[str, tuple[str, set[str]]] = {
    "serving": ("mcp", {"uvicorn"}),
    "cluster": ("ray", set()),
    "training": ("torch", {"transformers", "trl", "peft", "datasets", "tokenizers"}),
}
# Those that a module's name does not tell.
DISTRIBUTIONS = {"elftools": "pyelftools", "skimage": "scikit-image", "yaml": "pyyaml"}
# A report's page and figures are files of their own; what reads its data writes nothing.
READING = [f"report.{name}" for name in ("data", "numbers", "loading", "from_run", "kept", "hardware_views")]
READING += [
    f"report.{name}" for name in ("agreement", "authorities", "saved", "comparing", "tables", "headline", "export")
]
# keeper and program open what they read, and a log.
WRITERS = {"runs.folder", "suites.folder", "outside.workspace", "outside.program", "outside.keeper", "outside.agent"}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name without the leading package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), str(path))
    return found


MODULES = modules()


@cache
def imports(tree: ast.Module) -> tuple[str, ...]:
    """Dotted names of all imports, wherever they stand; relative ones are not used in this package."""
    return tuple(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                is_module = full.removeprefix("cudamaster.") in MODULES and base.startswith("cudamaster")
                yield full if is_module else base


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def own(tree: ast.Module) -> set[str]:
    """The package's own modules that a module imports, without the leading package."""
    return {name.removeprefix("cudamaster.") for name in imports(tree) if name.startswith("cudamaster.")}


def package_of(name: str) -> str:
    return name.partition(".")[0]


def test_the_walk_sees_the_package() -> None:
    """The tests below are about modules that exist, and see imports inside functions."""
    assert {"agents.planner", "runs.folder", "strategies.cudamaster", "models.litellm_model"} <= set(MODULES)
    assert "litellm" in set(imports(MODULES["models.litellm_model"]))


def test_every_module_has_its_package() -> None:
    """Nothing lies loose, and a new package has to be given its place above, behind all that it imports."""
    assert {package_of(name) for name in MODULES} == {"cudamaster", "", "__main__", "cli", *PACKAGES} - {"cudamaster"}
    order = list(PACKAGES)
    for name, allowed in PACKAGES.items():
        assert all(order.index(other) < order.index(name) for other in allowed), name
    assert set(NARROWER) | set(READING) | WRITERS <= set(MODULES)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if package_of(name) in PACKAGES))
def test_imports_point_one_way(name: str) -> None:
    package = package_of(name)
    wrong = {other for other in own(MODULES[name]) if package_of(other) not in {package, "core", *PACKAGES[package]}}
    assert not wrong, f"{name} imports {sorted(wrong)}"


def narrowest(name: str) -> str:
    """The entry of NARROWER that a module is under; empty if none."""
    return max((part for part in NARROWER if within(name, part)), key=len, default="")


@pytest.mark.parametrize("name", sorted(name for name in MODULES if narrowest(name)))
def test_some_may_import_less(name: str) -> None:
    allowed = NARROWER[narrowest(name)]
    wrong = {other for other in own(MODULES[name]) if not any(within(other, prefix) for prefix in allowed)}
    assert not wrong, f"{name} imports {sorted(wrong)}"


def test_every_package_imports_what_it_may() -> None:
    """A line above that is no longer needed has to go."""
    for package, allowed in PACKAGES.items():
        used = {package_of(other) for name in MODULES if package_of(name) == package for other in own(MODULES[name])}
        assert allowed <= used, f"{package} has no use for {sorted(allowed - used)}"
    for part, prefixes in NARROWER.items():
        used = {other for name in MODULES if narrowest(name) == part for other in own(MODULES[name])}
        idle = {prefix for prefix in prefixes if not any(within(other, prefix) for other in used)}
        assert not idle, f"{part} has no use for {sorted(idle)}"


def test_the_bench_half_does_not_know_the_search_half() -> None:
    for name, tree in MODULES.items():
        if any(within(name, part) for part in BENCH):
            assert not {other for other in own(tree) if any(within(other, part) for part in SEARCH)}, name


def test_only_the_command_line_imports_the_command_line() -> None:
    for name, tree in MODULES.items():
        if not within(name, "cli") and name != "__main__":
            assert not {other for other in own(tree) if within(other, "cli")}, name


def test_every_program_is_given_its_environment() -> None:
    """Left to itself a child gets ours, keys and all; what it may have is said in core/keys.py or beside the call."""
    starting = {"subprocess.run", "subprocess.Popen"}
    calls = [
        (name, node.lineno, {keyword.arg for keyword in node.keywords})
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in starting
    ]
    assert len(calls) >= 8
    assert [(name, line) for name, line, given in calls if "env" not in given] == []
    for name, tree in MODULES.items():
        assert not {"subprocess.check_output", "subprocess.call", "subprocess.check_call", "os.system", "os.popen"} & {
            ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)
        }, name


def test_extras_are_imported_by_one_package() -> None:
    """The others work without them."""
    for package, (extra, more) in EXTRAS.items():
        for wanted in (extra, *more):
            users = {package_of(n) for n, tree in MODULES.items() if any(within(i, wanted) for i in imports(tree))}
            assert users == {package}, wanted


def test_only_one_module_reaches_ray() -> None:
    """The others work where it is not installed."""
    assert [n for n, tree in MODULES.items() if any(within(i, "ray") for i in imports(tree))] == ["cluster.ray_calls"]


def test_only_one_module_reaches_litellm() -> None:
    assert [n for n, tree in MODULES.items() if any(within(i, "litellm") for i in imports(tree))] == [
        "models.litellm_model"
    ]


@pytest.mark.slow
def test_what_is_imported_is_declared() -> None:
    """What another package brings along today may be gone with its next version."""
    declared = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    wanted = declared["project"]["dependencies"]
    brought = {name for extra, more in EXTRAS.values() for name in (extra, *more)}
    assert {extra for extra, _ in EXTRAS.values()} <= set(declared["project"]["optional-dependencies"])
    assert imported_from(PACKAGE) - brought - {plain(line) for line in wanted} == set()
    dev = [*wanted, *declared["dependency-groups"]["dev"]]
    tests, benchmarks = PACKAGE.parent / "tests", PACKAGE.parent / "benchmarks"
    assert imported_from(tests, benchmarks) - {plain(line) for line in dev} == set()


def imported_from(folder: Path, *near: Path) -> set[str]:
    """The distributions that a folder's files import: what is no file in it, in a folder near it or of Python."""
    files = list(folder.rglob("*.py"))
    tops: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            if isinstance(node, ast.Import):
                tops |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                tops.add((node.module or "").partition(".")[0])
    files += [file for each in near for file in each.rglob("*.py")]
    beside = {name for file in files for name in (file.stem, file.parent.name)}
    return {plain(DISTRIBUTIONS.get(top, top)) for top in tops - beside - {"cudamaster"} - sys.stdlib_module_names}


def plain(requirement: str) -> str:
    return re.split(r"[<>=!~;\[ ]", requirement)[0].lower().replace("_", "-")


def test_files_are_of_one_encoding() -> None:
    """Left to itself Python takes the locale's, which may have no letter for what a kernel's comment says."""
    calls = [
        (name, node.lineno, node.func.attr, bool(node.args), {keyword.arg for keyword in node.keywords})
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert [
        (name, line)
        for name, line, called_as, has_arguments, given in calls
        if (called_as == "write_text" or (called_as == "read_text" and not has_arguments)) and "encoding" not in given
    ] == []


def test_agents_touch_no_disk_and_start_no_process() -> None:
    barred = {"os", "io", "pathlib", "subprocess", "shutil", "tempfile", "socket", "urllib", "http", "multiprocessing"}
    for name, tree in MODULES.items():
        if within(name, "agents") or within(name, "strategies"):
            assert not {i for i in imports(tree) if i.split(".")[0] in barred}, name
            assert not {c for c in called(tree) if c in ("open", "exec", "eval", "__import__")}, name


def called(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute) and not _is_text_replace(node):
                yield "RunFolder.open" if ast.unparse(node.func) == "RunFolder.open" else node.func.attr


def _is_text_replace(call: ast.Call) -> bool:
    # str.replace takes two arguments, Path.replace one, dataclasses.replace is called by its bare name.
    return isinstance(call.func, ast.Attribute) and call.func.attr == "replace" and len(call.args) != 1


def test_only_one_module_writes_run_folders() -> None:
    """Nothing else in the search half but suites writes files, and only modules that record use a RunFolder."""
    for name, tree in MODULES.items():
        quiet = package_of(name) in SEARCH - {"report"} or name in READING or name == "core.records"
        if quiet and name not in WRITERS:
            assert not (WRITING | {"open"}) & set(called(tree)), name
    assert WRITING & set(called(MODULES["runs.folder"]))
    users = {name for name, tree in MODULES.items() if "RunFolder" in names(tree)}
    assert users == {"runs.folder", "runs.recording", "runs.spending", "runs.optimization"}


def names(tree: ast.Module) -> set[str]:
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names}
    return (
        imported
        | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        | {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    )


def test_importing_the_package_does_nothing() -> None:
    """No third-party module is loaded, and neither are the parts that use one."""
    script = "import sys; before = set(sys.modules); import cudamaster; print(sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['cudamaster']"


def test_the_search_is_imported_without_litellm() -> None:
    script = "import sys, cudamaster.runs.optimization, cudamaster.models.choose; print('litellm' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
