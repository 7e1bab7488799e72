"""The example of a strategy with an agent in docs/adding.md: its files and two lines are enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cudamaster
from cudamaster.core import resources

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "strategy"
_SEARCH = """
import json, sys
from pathlib import Path
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel
from cudamaster.core.values import Role
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings

told = (Role.CRITIC, json.dumps({"lines": "the loop", "advice": "Unroll it."}))
nothing = (Role.CRITIC, "I like it.")
script = [told, code(kernel(score=1.5, tag="a")), nothing, nothing, told, code(kernel(score=2.5, tag="b"))]
model = ScriptedModel(script)
settings = Settings("criticised", 3, 0, "stand-in", dict.fromkeys((Role.CRITIC, Role.CODER), "scripted"))
path = Path(sys.argv[1])
result = optimize(path, ScriptedWorkbench(), model.for_all(), settings)
assert result.score == 2.5, result
assert [one.outcome.accepted for one in result.rounds] == [True, False, True]
assert "criticise CUDA kernels" in model.requests[0].messages[0].content
assert "Unroll it." in model.prompts(Role.CODER)[0]
assert resume(path, ScriptedWorkbench(), ScriptedModel([]).for_all()) == result
summary = read(path)
assert [call.role for call in summary.rounds[0].calls] == [Role.CRITIC, Role.CODER]
print(summary.search)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the example in it: files copied as they are, and the lines that the page shows put in."""
    checkout = tmp_path_factory.mktemp("checkout")
    for shared in ("bench", "templates", "profiles"):
        (checkout / shared).symlink_to(resources.root() / shared)
    copy = checkout / "cudamaster"
    shutil.copytree(Path(cudamaster.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "playbook"))
    shutil.copytree(EXAMPLE, copy, dirs_exist_ok=True)
    for file, after, line in lines():
        text = (copy / file).read_text()
        assert text.count(after) == 1, file
        (copy / file).write_text(text.replace(after, f"{after}{line}\n"))
    return checkout


def lines() -> list[tuple[str, str, str]]:
    """The file, the line before, and the line that is added, of each diff on the page."""
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    found = re.findall(r"^    \+\+\+ cudamaster/(\S+)\n    @@\n     (.*\n)    \+(.*)\n", page, re.MULTILINE)
    assert len(found) == 2
    return found


def run(package: Path, *command: str) -> str:
    places = os.pathsep.join(map(str, (package, ROOT / "tests" / "search")))
    environment = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=package, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_searches_is_recorded_and_is_read_back(package: Path, tmp_path: Path) -> None:
    assert run(package, "-c", _SEARCH, str(tmp_path / "run")) == "criticised, R = 3\n"


def test_the_command_line_knows_it(package: Path) -> None:
    told = run(package, "-m", "cudamaster", "optimize", "--help")
    assert "criticised" in told
    assert "--critic-model" in told


_PLAYBOOK = """
import sys
from pathlib import Path
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Role
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Request

try:
    PlaybookModel(Path(sys.argv[1])).ask(Request(Role.CRITIC, (), {"task": "relu", "precision": "fp32"}))
except UsageError as error:
    print(error)
"""


def test_the_playbook_says_that_it_has_no_answer_for_the_role(package: Path) -> None:
    """Who tries the new strategy without a model learns what is missing."""
    told = run(package, "-c", _PLAYBOOK, str(resources.package() / "playbook"))
    assert "no answer for the critic" in told


def test_the_page_shows_the_examples_as_they_are() -> None:
    """Every block that names a file of examples/ is that file."""
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    shown = re.findall(r"^`(examples/[^`]+)`:\n\n((?:    .*\n|\n)+)", page, re.MULTILINE)
    assert {Path(name).suffix for name, _ in shown} == {".yaml", ".h", ".cu", ".py", ".j2"}
    for name, block in shown:
        text = "".join(line.removeprefix("    ") for line in block.splitlines(keepends=True))
        assert text.strip("\n") == (ROOT / name).read_text(encoding="utf-8").strip("\n"), name
