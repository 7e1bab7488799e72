"""`optimize`: the main job on the CPU device."""

import json
from pathlib import Path

from command_line import run


def test_optimize_with_the_playbook(tmp_path: Path) -> None:
    """The main job on the CPU device: it says what it is, ends with the table, and can be resumed for nothing."""
    words = ["--precision", "bf16", "-R", "1", "-D", "1", "--device", "cpu"]
    done = run("optimize", "layer_norm", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for said in (
        "Round 1 of 1",
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
    assert len(result["rounds"]) == 1
    assert all(finished["outcome"]["status"] == "correct" for finished in result["rounds"])
    for line in ("best.cu", "nvcc"):
        assert line in done.stdout
