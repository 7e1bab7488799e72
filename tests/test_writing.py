"""Files that commands write are whole: on a full disk the old file stays, and the error says why."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cudamaster.core.writing import whole, write_text

RUN = Path(__file__).parent.parent / "results" / "h200" / "spmv_csr_fp32"
COMMANDS = {
    "harness": (["harness", "sorting", "-o"], "file.cu"),
    "a run's page": (["show", str(RUN), "--html"], "file.html"),
    "a report's page": (["report", str(RUN), "--html"], "file.html"),
    "a report's lines": (["report", str(RUN), "--csv"], "file.csv"),
}


def small_files() -> None:
    """No file of more than 512 bytes: as a full disk, writing fails in the middle.

    Python would keep such halves of compiled modules, and every later process would stumble over them (-B: it makes
    none).
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


@pytest.mark.slow(but=["harness"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_cannot_be_written_wholly_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    command, file = COMMANDS[name]
    path = tmp_path / file
    path.write_text("old")
    words = [sys.executable, "-B", "-m", "cudamaster", *command, str(path)]
    for limit, left, code in ((small_files, True, 2), (None, False, 0)):
        done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit, check=False)
        assert done.returncode == code, done.stderr
        assert ("File too large" in done.stderr) == left
        assert (path.read_text() == "old") == left
        assert [one.name for one in tmp_path.iterdir()] == [file]


@pytest.mark.slow
def test_a_figure_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "cumulative_success.svg").write_text("old")
    words = [sys.executable, "-B", "-m", "cudamaster", "report", str(RUN), "--figures", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=small_files, check=False)
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("cumulative_success.svg", "old")]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with whole(path) as staged:
            staged.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "old")]


def test_links_rights_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_text(link, "new\r\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"new\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    write_text(Path(os.devnull), "gone")
    assert Path(os.devnull).is_char_device()
