"""README and docs match the program: commands and options exist, and the examples in docs/ run.

The README's own lines are tried in test_readme.py. A block of commands in docs/ is run, unless a comment before it says
why it is only shown:

    <!-- shown only: needs a GPU -->
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest
from test_imports import PACKAGES

from cudamaster.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/log").glob("*.md"))]
DOCUMENTS = [ROOT / "README.md", *PAGES, ROOT / "results/README.md"]
_SHOWN_ONLY = re.compile(r"<!-- shown only: .+? -->$")
_COMMAND = re.compile(r"     *(?:\$ )?(?:[A-Z_]+=\S+ )?(?:cudamaster|python benchmarks/|make)\b")
_IN_TEXT = re.compile(r"`((?:\$ )?(?:\.venv/bin/)?cudamaster [a-z][^`]*)`")


def lines_of(document: Path) -> Iterator[str]:
    """Every command line of a document: of its indented blocks, and between backticks in its text."""
    text = document.read_text(encoding="utf-8")
    yield from _IN_TEXT.findall(text.replace("\n", " "))
    for line in text.splitlines():
        if re.match(r"    (?:\$ )?(?:\.venv/bin/)?cudamaster [a-z]", line):
            yield line.strip()


def words_of(line: str) -> list[str]:
    """What follows `cudamaster`, as far as a pipe, a redirection or a comment."""
    words = shlex.split(line.removeprefix("$ "), comments=True)[1:]
    ends = [at for at, word in enumerate(words) if word in ("|", ">", "2>", "<", "&&")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_commands_and_options_that_there_are(document: Path) -> None:
    context = click.Context(main)
    for line in lines_of(document):
        name, *words = words_of(line)
        command = main.get_command(context, name)
        assert command is not None, line
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
        assert given <= known, f"{line}: {sorted(given - known)}"


def test_the_walk_sees_the_commands() -> None:
    found = [line for document in DOCUMENTS for line in lines_of(document)]
    assert len(found) > 60
    assert words_of("$ cudamaster tasks relu --skeleton > my.cu") == ["tasks", "relu", "--skeleton"]


@dataclass(frozen=True)
class Block:
    """Indented lines of a page that hold commands, and whether they are only shown."""

    page: str
    number: int  # among the page's blocks of commands, from 1
    lines: tuple[str, ...]
    shown_only: bool

    @property
    def script(self) -> str:
        """What a reader would paste."""
        return "\n".join(line.removeprefix("$ ") for line in self.lines)


def blocks_of(page: Path) -> list[Block]:
    """All blocks of commands of a page."""
    found: list[Block] = []
    before = ""
    for part in page.read_text(encoding="utf-8").split("\n\n"):
        lines = part.strip("\n").splitlines()
        if any(_COMMAND.match(line) for line in lines) and all(line.startswith("    ") for line in lines):
            taken = tuple(line[4:] for line in lines)
            found.append(Block(page.stem, len(found) + 1, taken, bool(_SHOWN_ONLY.match(before.strip()))))
        before = part
    return found


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A block pasted into bash, in a folder in which results/ and the like are those of the checkout, without a GPU."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
        "XDG_DATA_HOME": str(folder / "user"),
        "CUDAMASTER_DATA": str(folder / "user"),
    }
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, text=True, capture_output=True, timeout=600
    )


def pasted(folder: Path) -> Path:
    """The folder, with what examples read of the checkout."""
    for name in ("results", "benchmarks", "profiles", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


RUN = [page for page in PAGES if any(not block.shown_only for block in blocks_of(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """The blocks of a page one after the other, as its reader would paste them."""
    folder = pasted(tmp_path)
    for block in blocks_of(page):
        if not block.shown_only:
            done = run(block.script, folder)
            assert done.returncode == 0, f"{block.script}\n{done.stdout}\n{done.stderr}"


def test_the_walk_sees_the_blocks() -> None:
    found = [block for page in PAGES for block in blocks_of(page)]
    assert len([block for block in found if not block.shown_only]) > 8
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    assert len([block for block in found if block.shown_only]) == len(
        [line for line in lines if _SHOWN_ONLY.match(line)]
    )


def test_every_page_is_in_the_menu() -> None:
    """Of the site; Sphinx says so too, but takes longer to ask."""
    menus = "\n".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("index.md", "optimisation-log.md")
    )
    menu = re.findall(r"^(?:.*<)?([a-z_./A-Z0-9-]+)>?$", menus, re.M)
    assert {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES} - {"index"} <= set(menu)


GUIDES = [ROOT / "docs/architecture.md", ROOT / "docs/adding.md"]
_PLACES = ("cudamaster", "bench", "benchmarks", "docs", "examples", "profiles", "templates", "tests", "hatch_build.py")
_A_FILE = re.compile(r"`([\w./-]+\.(?:py|h|cu|cpp|yaml|md|j2)|[\w./-]+/)`")
_IN_A_FILE = re.compile(r"`(?:\w+\.)?(\w+)`(?: and `(\w+)`)?,? in `([\w./-]+\.(?:py|h))`")
_NOT_YET = {"devices/hip.py"}  # what HIP would take


@cache
def checkout() -> list[Path]:
    """The files and folders that a guide may name."""
    return [path for place in _PLACES for path in (ROOT / place, *(ROOT / place).rglob("*"))]


def places_of(name: str) -> list[Path]:
    """Those that a guide may mean by a name: the whole path, or the end of one."""
    return [path for path in checkout() if str(path).endswith(f"/{name.rstrip('/')}")]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_a_guide_names_files_that_there_are(guide: Path) -> None:
    """And what it says is in a file is a word of that file."""
    text = " ".join(guide.read_text(encoding="utf-8").split())
    named = set(_A_FILE.findall(text)) - _NOT_YET
    assert len(named) > 25
    assert sorted(name for name in named if not places_of(name)) == []
    inside = [(word, file) for *words, file in _IN_A_FILE.findall(text) for word in words if word]
    assert len(inside) > 2
    for word, file in inside:
        texts = [path.read_text(encoding="utf-8") for path in places_of(file)]
        assert any(re.search(rf"\b{word}\b", each) for each in texts), f"{word} is not in {file}"


def test_the_table_of_packages_is_that_of_the_imports() -> None:
    """A row for each package, in the order of tests/test_imports.py, and what it imports; some rows say it in words."""
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.*?) ?\|$", GUIDES[0].read_text(encoding="utf-8"), re.M)
    assert [package for package, _ in rows] == [*PACKAGES, "cli"]
    listed = {package: set(re.findall(r"`(\w+)`", imports)) for package, imports in rows}
    in_words = {"workbench", "runs", "report", "cli"}
    assert {name: listed[name] for name in PACKAGES if name not in in_words} == {
        name: imports for name, imports in PACKAGES.items() if name not in in_words
    }


def test_the_drawings_name_files_that_there_are() -> None:
    """Modules of the package, and sources of the harness."""
    named = []
    for drawing in sorted((ROOT / "docs/images").glob("*.svg")):
        for text in re.findall(r">([^<>]+)<", drawing.read_text(encoding="utf-8")):
            for word in re.findall(r"[\w./]+", text):
                if re.fullmatch(r"[a-z_]+\.[a-z_]+", word) and not word.endswith((".h", ".cu")):
                    named.append(ROOT / "cudamaster" / f"{word.replace('.', '/')}.py")
                elif word.endswith(".h"):
                    named.append(ROOT / "bench/include/mskb" / word)
                elif word.endswith(".cu"):
                    named.append(ROOT / word)
    assert len(named) > 10
    assert [path for path in named if not path.exists()] == []
