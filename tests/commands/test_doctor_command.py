"""`doctor` says what is missing and how to get it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import run

from cudamaster.cli.doctor import examine


def test_doctor_says_what_is_missing_and_how_to_get_it() -> None:
    """Without a compiler no device works, and the fix is there."""
    good = run("doctor", "--json")
    assert good.returncode == 0
    told = json.loads(good.stdout)
    assert told["devices"]["cpu"] is True
    assert not any(finding["found"] and finding["fix"] for finding in told["findings"]), "a fix of what is not broken"
    bad = run("doctor", CXX="g++-of-nobody", OPENAI_API_KEY="sk-not-to-be-shown")
    assert bad.returncode == 4
    assert "apt-get install g++" in bad.stdout
    assert "g++-of-nobody" in bad.stdout, "which compiler is missing"
    assert "sk-not-to-be-shown" not in bad.stdout


def test_doctor_tells_what_keeps_the_self_test_from_running(tmp_path: Path) -> None:
    """A cache that cannot be written is what doctor is there to say: it ends with all its findings."""
    (tmp_path / "file").write_text("")
    done = run("doctor", "--self-test", "--json", CUDAMASTER_CACHE=str(tmp_path / "file" / "cache"))
    assert done.returncode == 4
    told = json.loads(done.stdout)
    assert told["devices"]["cpu"] is False
    (found,) = [finding for finding in told["findings"] if finding["what"] == "CPU device"]
    assert "self-test not run" in found["detail"]
    assert str(tmp_path / "file" / "cache") in found["detail"]


def test_doctor_tells_of_a_disk_that_has_no_room_for_a_first_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build would find out after a while."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    (found,) = [finding for finding in examine() if finding.what == "cache"]
    assert not found.found
    assert found.detail == f"{tmp_path} is on a disk with 3.0 MB left, and a first build takes 150 MB"
