"""The wheel: in an environment of its own and an empty folder, nothing of the checkout is missed; and `--version`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cudamaster.core import resources, version

ROOT = Path(__file__).parent.parent
SHIPPED = ("bench", "templates", "profiles")


def test_version_names_the_commit_and_the_toolchain() -> None:
    command = [sys.executable, "-m", "cudamaster", "--version"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    told = dict(line.split(maxsplit=1) for line in lines)
    assert list(told) == ["cudamaster", "Python", "nvcc", "C++", "platform"]
    assert len({re.match(r"\S+ +", line).end() for line in lines}) == 1, "aligned"  # type: ignore[union-attr]
    assert told["cudamaster"].endswith(f"commit {version.commit() or 'unknown'}")
    assert "g++" in told["C++"] or "clang" in told["C++"]


def test_a_changed_checkout_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tracked files: what lies around beside them changes nothing."""

    def git(*words: str) -> str:
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(resources, "root", lambda: tmp_path)
    assert version.commit() is None, "no checkout"
    (tmp_path / "file").write_text("1")
    git("init", "-q")
    git("add", "file")
    git("commit", "-qm", "first")
    head = git("rev-parse", "--short=12", "HEAD").strip()
    (tmp_path / "other").write_text("1")
    assert version.commit() == head
    (tmp_path / "file").write_text("2")
    assert version.commit() == f"{head}+dirty"


@pytest.mark.slow
def test_the_wheel_is_enough(tmp_path: Path) -> None:
    """Built from the source archive, as from an index. What it depends on is taken from this environment."""
    build = [sys.executable, "-m", "uv", "build", "-q", "--python", sys.executable]
    done = subprocess.run([*build, "-o", tmp_path, ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "installed")
    data = tmp_path / "installed" / "cudamaster" / "_data"
    tracked = subprocess.run(["git", "ls-files", *SHIPPED], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [name for name in tracked.splitlines() if not (data / name).is_file()] == []
    assert (data / "commit").read_text().strip() == version.commit()

    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "CUDA_VISIBLE_DEVICES": ""}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "cudamaster", *words]
        ran = subprocess.run(command, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert str(tmp_path / "installed") in run("--version")
    assert "relu" in run("tasks")
    assert "relu" in run("harness", "relu")
    assert "wgmma" in run("hgemm", "kernel", "4096x4096x4096")
    assert "CUDA" in run("prompt", "relu", "--role", "planner")
    run("optimize", "relu", "-R", "1", "-D", "0", "--device", "cpu", "--profile", "none", "--record", "kept")
    run("show", "kept/relu_fp32", "--html", "run.html")
    run("report", "kept", "--html", "report.html")
    assert all("<html" in (tmp_path / "empty" / f"{name}.html").read_text() for name in ("run", "report"))
