"""What commands print: to a reader that has gone, to a full disk, and to terminals of all widths."""

import contextlib
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

from cudamaster.cli.output import cases_table, console
from cudamaster.core import resources
from cudamaster.core.speed import compare
from cudamaster.core.values import CaseVerdict, OutputCheck, Status, Timing, Verdict


@pytest.mark.slow(but=["arguments1"])
@pytest.mark.parametrize("arguments", [["tasks"], ["tasks", "--json"]])
def test_a_reader_that_has_gone_is_no_verdict(arguments: list[str]) -> None:
    """Exit codes 0 and 1 speak of kernels, so a closed pipe gets that of SIGPIPE, as with any program."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "cudamaster", *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow(but=["arguments3", "arguments5"])
@pytest.mark.parametrize(
    "arguments",
    [["tasks"], ["--help"], ["evaluate", "--help"], ["evaluate"], ["tasks", "nowhere"], ["tasks", "nowhere", "--json"]],
)
def test_a_reader_of_both_streams_that_has_gone(arguments: list[str]) -> None:
    """As in `cudamaster ... 2>&1 | head`: help, errors and wrong usage are no verdict either."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "cudamaster", *arguments], stdout=write, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 141


def test_a_full_disk_gets_one_line() -> None:
    """What cannot be written is no traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cudamaster", "tasks"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def on_a_terminal(*arguments: str, columns: int) -> str:
    """All that a command writes on a terminal of so many columns, line ends as a terminal gets them."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["COLUMNS"] = str(columns)
        os.execv(sys.executable, [sys.executable, "-m", "cudamaster", *arguments])
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose program has ended
        while part := os.read(terminal, 65536):
            written += part
    os.waitpid(process, 0)
    os.close(terminal)
    return written.decode()


@pytest.mark.slow(but=["40"])
@pytest.mark.parametrize("columns", [40, 80])
def test_the_next_command_is_one_line_on_every_terminal(columns: int) -> None:
    """The terminal may break it; a line end of ours would make two commands of what is pasted, both broken."""
    kept = "results/h200/spmv_csr_bf16"
    told = on_a_terminal("show", str(resources.root() / kept), "--no-diff", columns=columns)
    command = told.split("Next: ")[1].splitlines()[0]
    assert shlex.split(command)[-1].endswith("candidate.o"), command


def test_a_table_of_cases_says_what_each_came_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Untimed cases have no row if they are right. The times of a case that failed are no change."""
    timing, speed = Timing((2.0, 4.0), (1.0, 2.0)), compare((2.0, 4.0), (1.0, 2.0))
    cases = (
        CaseVerdict("N=1", False, 1.0, Status.CORRECT),
        CaseVerdict("N=2", False, 1.0, Status.WRONG, outputs=(OutputCheck("y", 1, 1, 1, 3.5, 0.0, 1.0, ""),)),
        CaseVerdict("N=3", False, 1.0, None, skipped="too large"),
        CaseVerdict("N=4", True, 1.0, None),
        CaseVerdict("N=5", True, 1.0, Status.REJECTED, timing=timing, speed=speed, floor_us=1.0),
        CaseVerdict("N=6", True, 1.0, Status.CORRECT, timing=timing, speed=speed),
    )
    monkeypatch.setenv("COLUMNS", "160")
    console().print(cases_table(Verdict("id", "cuda", False, Status.WRONG, "", cases=cases)))
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "N=" in line]
    assert rows == [
        "N=2 wrong - - - 350.0%",
        "N=3 skipped: too large - - - -",
        "N=4 not checked - - - -",
        "N=5 3.0 → 1.5 2.00 (2.00 to 2.00) rejected 1.5 x -",
        "N=6 3.0 → 1.5 2.00 (2.00 to 2.00) faster - -",
    ]


def test_the_next_command_works_when_pasted() -> None:
    """Also where `cudamaster` is not on the path, as after `make demo`."""
    done = run("tasks", PATH="/usr/bin:/bin")
    command = shlex.split(done.stdout.split("Next: ")[1].split(",")[0])
    command[command.index("NAME")] = "sorting"
    again = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"}, check=False
    )
    assert "sorting" in again.stdout, again.stderr
