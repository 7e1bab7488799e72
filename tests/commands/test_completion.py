"""`cudamaster completion`: each shell completes with the script that it is given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, with a run in runs/ and one folder that is none; bin/ has the program as pip installs it."""
    for name, manifest in (("relu_fp32_1", "run.json"), ("suite_2", "suite.json"), ("nothing", "x")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / manifest).write_text("{}")
    program = tmp_path / "bin" / "cudamaster"
    program.parent.mkdir()
    start = "import sys; sys.argv[0] = 'cudamaster'; from cudamaster.cli import main; main()"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c "{start}" "$@"\n')
    program.chmod(0o755)
    return tmp_path


def said_by(shell: list[str], folder: Path) -> list[str]:
    """What a shell with the program on its PATH prints."""
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


WORDS = [
    (["opt"], ["optimize"]),
    (["optimize", "rel"], ["relu"]),
    (["suite", "--tasks", "softmax_"], ["softmax_attention"]),
    (["optimize", "relu", "--prec"], ["--precision"]),
    (["optimize", "relu", "--strategy", "contr"], ["contrastive"]),
    (["show", "runs/"], ["runs/relu_fp32_1", "runs/suite_2"]),
]


def test_bash_completes(folder: Path) -> None:
    (folder / "script").write_text(run("completion", "bash").stdout)
    asked = "".join(
        f"COMPREPLY=(); COMP_WORDS=(cudamaster {' '.join(words)}); COMP_CWORD={len(words)}\n"
        '_cudamaster_completion cudamaster; echo "${COMPREPLY[*]}"\n'
        for words, _ in WORDS
    )
    lines = said_by(["bash", "-c", f"source ./script\n{asked}"], folder)
    assert [sorted(line.split()) for line in lines] == [expected for _, expected in WORDS]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Path) -> None:
    (folder / "script").write_text(run("completion", "fish").stdout)
    words, expected = WORDS[1]
    lines = said_by(
        ["fish", "--no-config", "-c", f"source ./script; complete -C 'cudamaster {' '.join(words)}'"], folder
    )
    assert [line.split("\t")[0] for line in lines] == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_its_script(folder: Path) -> None:
    done = json.loads(run("completion", "zsh", "--json").stdout)
    (folder / "script").write_text(done["script"])
    assert "_cudamaster" in done["file"]
    asked = "autoload -U compinit; compinit -u; source ./script; print ${_comps[cudamaster]}"
    assert said_by(["zsh", "-f", "-c", asked], folder) == ["_cudamaster_completion"]
