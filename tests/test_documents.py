"""Holds the command lines of README and docs to the commands that there are; runs its way for one's own kernel."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cudamaster.cli import main

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results/README.md"]
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


def test_the_way_for_a_kernel_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three lines of the README, one after the other: the skeleton compiles, and zeros are wrong."""
    monkeypatch.chdir(tmp_path)
    part = (ROOT / "README.md").read_text(encoding="utf-8").partition("### 2.")[2].partition("###")[0]
    block = [line.strip() for line in part.splitlines() if line.startswith("    cudamaster ")]
    assert len(block) == 3
    codes = []
    for line in block:
        done = CliRunner().invoke(main, words_of(line), env={"CUDA_VISIBLE_DEVICES": ""})
        codes.append(done.exit_code)
        if "> my.cu" in line:
            Path("my.cu").write_text(done.stdout)
    assert codes == [0, 0, 1], done.output
    assert "wrong" in done.output
