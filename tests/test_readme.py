"""The README's five ways: their lines run when pasted, and they print what the README shows of it."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from chat_servers import ChatServer
from search_stand_ins import code, command, plan
from test_documents import pasted, run

from cudamaster.core.values import Role

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = "relu"  # the task of way 4 and way 5 here: evaluated in a fifth of the time
BASELINE = (ROOT / f"bench/fp32/{SMALL}.cu").read_text(encoding="utf-8")


def blocks(number: int) -> list[str]:
    """The indented blocks of a way: its commands, then what it shows of their output."""
    way = README.partition(f"### {number}. ")[2].partition("\n#")[0]
    parts = [part.strip("\n") for part in way.split("\n\n")]
    return [
        "\n".join(line[4:] for line in part.splitlines())
        for part in parts
        if all(line.startswith("    ") for line in part.splitlines())
    ]


def parted(number: int) -> tuple[list[str], list[str]]:
    """The three commands of a way, and the lines of its output; dots at the end of a line stand for the rest of it."""
    commands, shown = blocks(number)
    assert len(commands.splitlines()) == 3
    return commands.splitlines(), shown.splitlines()


def pattern(line: str, *, exact: bool = False) -> re.Pattern[str]:
    """A line that is shown: what its dots stand for, its blanks and, unless it is `exact`, its numbers may differ."""
    whole = line.rstrip(". ") if line.endswith("...") else line
    assert whole.strip(), "dots alone show nothing"
    words = [re.escape(word) if exact else re.sub(r"\d+", r"\\d+", re.escape(word)) for word in whole.split()]
    return re.compile(r"\s*" + r"\s+".join(words) + ("" if line.endswith("...") else r"\s*$"))


def must_show(done: subprocess.CompletedProcess[str], shown: list[str], *, exact: bool = False) -> None:
    """Each of the lines is printed, in this order."""
    printed = iter(done.stdout.splitlines())
    for line in shown:
        wanted = pattern(line, exact=exact)
        assert any(wanted.match(other) for other in printed), f"{line}\nis not in\n{done.stdout}{done.stderr}"


def test_it_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) < 150


@pytest.mark.slow
def test_way_1_without_anything(tmp_path: Path) -> None:
    """What `make demo` runs; its set-up is what these tests run in. The third line is these tests."""
    (demo, show, tests), shown = parted(1)
    assert demo.split()[:2] == ["make", "demo"]
    assert tests.split()[:2] == ["make", "test"]
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].splitlines()[1]
    done = run(recipe.strip().replace("$(BIN)/", ""), pasted(tmp_path))
    assert done.returncode == 0, done.stderr
    # Whether round 3 is likely to be faster is close: its last two columns differ from run to run.
    shown[-1] = f"{shown[-1].rsplit(None, 2)[0]} ..."
    must_show(done, shown)
    for line in shown[2:]:  # times are modelled: P is nearly the same everywhere
        printed = next(other for other in done.stdout.splitlines() if pattern(line).match(other))
        found, wanted = (re.findall(r"\d+\.\d+", text) for text in (printed, line))
        assert [float(p) for p in found[: len(wanted)]] == pytest.approx([float(p) for p in wanted], rel=0.1)
    unsure = re.search(r"UNSURE: the model cannot tell these ([23]) kernels apart\.", done.stdout)
    assert unsure is not None, done.stdout
    offered = done.stdout[unsure.end() :]
    assert offered.count("cudamaster evaluate spmv_csr runs/spmv_csr_bf16_") == int(unsure[1])
    again = run(show, tmp_path)
    assert again.returncode == 0
    assert "Eight lanes per row" in again.stdout


@pytest.mark.slow
def test_way_2_with_a_kernel_of_ones_own(tmp_path: Path) -> None:
    """From a file to a faster one."""
    lines, shown = parted(2)
    done = run("\n".join(lines), pasted(tmp_path))
    assert done.returncode == 0, done.stderr
    must_show(done, shown)


@pytest.mark.slow
def test_way_3_beside_pytorch(tmp_path: Path) -> None:
    """The first line installs PyTorch, which is here or not."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (install, *lines), shown = parted(3)
    assert "pip install torch" in install
    done = run("\n".join(lines), pasted(tmp_path))
    assert done.returncode == 0, done.stderr
    must_show(done, shown)


@pytest.mark.slow
def test_way_4_with_a_model(tmp_path: Path) -> None:
    """The server is one of ours, which answers with the baseline and a remark."""

    def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        del messages
        if role is Role.PLANNER:
            return 200, plan("As it is")[1]
        if role is Role.COMPILER:
            return 200, command()[1]
        return 200, code(f"{BASELINE.replace(f'{SMALL}(', f'{SMALL}_optimized(')}// {time.time_ns()}\n")[1]

    (key, optimize, show), shown = parted(4)
    task = optimize.split()[2]
    with ChatServer(answer) as server:
        done = run(f"{key}\n{optimize} --base-url {server.url}".replace(task, SMALL), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    must_show(done, [line.replace(task, SMALL) for line in shown], exact=True)
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer ..."}
    again = run(show.replace(task, SMALL), tmp_path)
    assert "As it is" in again.stdout, again.stderr


@pytest.mark.slow
def test_way_5_with_a_gpu(tmp_path: Path) -> None:
    """Here without one: the same lines on the CPU device, for one task. What is shown is of the kept suite."""
    (doctor, suite, report), shown = parted(5)
    short = suite.partition("#")[0].replace("suite", f"suite --tasks {SMALL}") + " -R 1"
    done = run(f"{doctor}\n{short}\n{report}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert SMALL in (tmp_path / "report.html").read_text()
    must_show(run("cudamaster report results/h200", pasted(tmp_path)), shown, exact=True)


def test_a_round_is_as_it_was(tmp_path: Path) -> None:
    """What the README quotes of a kept run, between its dots, is what `show` says of it today."""
    quoted = re.search(r"    \$ (cudamaster show .+)\n    \.\.\.\n((?:    .*\n)+?)    \.\.\.\n", README)
    assert quoted is not None
    done = run(quoted[1], pasted(tmp_path))
    wanted = "\n".join(line[4:].rstrip() for line in quoted[2].splitlines())
    assert wanted in "\n".join(line.rstrip() for line in done.stdout.splitlines())
