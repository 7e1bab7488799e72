"""`optimize`: the main job on the CPU device."""

import json
from pathlib import Path

import pytest
from command_line import run


@pytest.mark.slow(but=["layer_norm-1"])
@pytest.mark.parametrize(("task", "rounds"), [("spmv_csr", 2), ("layer_norm", 1)])
def test_optimize_with_the_playbook(tmp_path: Path, task: str, rounds: int) -> None:
    """The main job on the CPU device: it says what it is, ends with the table, and can be resumed for nothing."""
    words = ["--precision", "bf16", "-R", str(rounds), "-D", "1", "--device", "cpu"]
    done = run("optimize", task, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for said in (
        f"Round {rounds} of {rounds}",
        "best so far",
        "P (modelled)",
        "of an NVIDIA H200",
        "modelled µs",
        "playbook",
        "not a language model",
        "nvcc",
        "--model",
    ):
        assert said in done.stdout, said
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "best.cu").is_file()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["emulated"] is True
    assert summary["modelled"]["gpu"] == "NVIDIA H200"
    again = run("optimize", "--resume", str(folder), "--json")
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)["result"]
    assert len(result["rounds"]) == rounds
    assert all(finished["outcome"]["status"] == "correct" for finished in result["rounds"])
    for line in ("best.cu", "nvcc"):
        assert line in done.stdout
