"""Ctrl-C, a signal and a closed terminal end a command at once, with the code of that and the way to go on."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import built_already
import pytest

from cudamaster.core.values import Precision
from cudamaster.runs.record import read_record
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region


@pytest.mark.slow(but=["2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, what a job queue sends and a lost connection end a run with 130 and the command that carries it on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cudamaster", "optimize", "sorting", "-R", "1", "--device", "cpu"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/sorting*/candidates/*.command")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    (folder,) = tmp_path.glob("runs/*")
    assert f"--resume {folder.relative_to(tmp_path)}" in said


@pytest.mark.slow
def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """The run ends as by Ctrl-C, although nobody reads its output any more."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        program = [sys.executable, "-m", "cudamaster", "optimize", "sorting", "-R", "1", "--device", "cpu"]
        os.execv(sys.executable, program)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/sorting*/candidates/*.command")) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    (folder,) = tmp_path.glob("runs/*")
    assert [session.ended for session in read_record(folder).sessions] == ["interrupted"]


@pytest.mark.slow(but=["True-15", "False-1"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_signal_that_our_caller_ignores_ends_nothing(number: signal.Signals, ignored: bool) -> None:
    """`nohup cudamaster ...` outlives its terminal."""
    script = (
        "import os, signal\n"
        f"if {ignored}: signal.signal({number.value}, signal.SIG_IGN)\n"
        "import cudamaster.cli as cli\n"
        "tasks = cli.main.get_command(None, 'tasks')\n"
        f"tasks.callback = lambda **_: (os.kill(os.getpid(), {number.value}), print('went on'))\n"
        "cli.main(['tasks'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    expected = (0, "went on\n", "") if ignored else (130, "", "interrupted\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == expected


def test_interrupted_within_an_import() -> None:
    """Ctrl-C while the class of a module is made, which Python 3.11 turns into another error, ends with 130, too."""
    script = (
        "import cudamaster.cli as cli\n"
        "class Slow:\n"
        "    def __set_name__(self, owner, name): raise KeyboardInterrupt\n"
        "def interrupted(**options): type('Module', (), {'field': Slow()})\n"
        "cli.main.get_command(None, 'tasks').callback = interrupted\n"
        "cli.main(['tasks'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, "interrupted\n")


def interrupt(process: subprocess.Popen[str], asleep: Path) -> None:
    """Send Ctrl-C to a process half a second after what it started has made the file `asleep`."""
    deadline = time.monotonic() + 120
    while not asleep.is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["*", "*-fsanitize=thread*"])
def test_interrupted_beside_other_threads(compiled: str, tmp_path: Path) -> None:
    """Ctrl-C waits neither for a compiler nor for what looks for faults, which takes minutes where a kernel hangs."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-dM*|*-E*) exec g++ "$@";; '
        f'{compiled}) touch {tmp_path}/asleep; exec sleep 300;; esac\n{built_already.taken()}exec g++ "$@" -O0\n'
    )
    compiler.chmod(0o755)
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(baseline_region(cards.load("elu"), Precision.FP32))
    process = subprocess.Popen(
        [sys.executable, "-m", "cudamaster", "evaluate", "elu", str(kernel), "--check-only", "--device", "cpu"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CXX": str(compiler), "CUDAMASTER_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    interrupt(process, tmp_path / "asleep")
    try:
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said


def runs(pid: str) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_an_interrupted_suite_waits_for_no_compiler(tmp_path: Path) -> None:
    """What other threads run is killed, and that it was is held against no kernel."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-dM*|*-E*) exec g++ "$@";; esac\n'
        f"echo $$ >> {tmp_path}/asleep\nexec sleep 300\n"
    )
    compiler.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "cudamaster", "suite", "--tasks", "*elu", "-R", "1", "--device", "cpu", "-j", "2"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CXX": str(compiler), "CUDAMASTER_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    interrupt(process, tmp_path / "asleep")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    asleep = (tmp_path / "asleep").read_text().split()
    deadline = time.monotonic() + 20
    while any(map(runs, asleep)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, asleep))
    assert not list(tmp_path.glob("runs/*/*/verdicts/*"))
