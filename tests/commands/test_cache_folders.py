"""Where the cache and temporary files may be: a folder that cannot be used is named before anything begins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import KERNEL, run

from cudamaster.core import resources


def _unusable_cache(kind: str, folder: Path) -> tuple[Path, str]:
    """A cache that cannot be used, and what is to be said of it."""
    place = folder / "cache"
    if kind == "a link to nothing":
        place.symlink_to(folder / "gone")
        return place, f"{place} is a link to {folder / 'gone'}, which is not there"
    if kind == "a link to itself":
        place.symlink_to(place)
        return place, f"{place} is a link to {place}, in a circle"
    if kind == "a name with a line break":
        return folder / "two\nlines", "a path with a line break, or one of "
    if kind == "below a home that nobody knows":
        return Path("~nobody-at-all/cache"), "nobody knows the home folder that it begins with"
    if kind == "below a link to nothing":
        place.symlink_to(folder / "gone")
        return place / "of" / "mine", f"{place} is a link to {folder / 'gone'}, which is not there"
    if kind == "a file":
        place.write_text("")
        return place, f"{place} is no folder"
    if kind == "below a file":
        place.write_text("")
        return place / "of" / "mine", f"{place} is no folder"
    if kind == "where no folder can be":
        return Path("/proc/c"), "/proc/c cannot be made"
    assert kind == "a folder without access"
    place.mkdir(mode=0o500)
    return place, "Permission denied"


_UNUSABLE = ("a link to nothing", "a link to itself", "below a link to nothing", "a file", "below a file",
             "where no folder can be", "a name with a line break", "below a home that nobody knows",
             "a folder without access")  # fmt: skip


@pytest.mark.slow(but=["a link to nothing"])
@pytest.mark.parametrize("kind", _UNUSABLE)
def test_an_unusable_cache_is_named_before_anything_begins(kind: str, tmp_path: Path) -> None:
    """Such a cache once made the command spin forever in silence, and doctor called it found."""
    if kind == "a folder without access" and os.geteuid() == 0:
        pytest.skip("root has access everywhere")
    place, said = _unusable_cache(kind, tmp_path)
    done = run("optimize", "relu", "--device", "cpu", "--out", str(tmp_path / "runs"), CUDAMASTER_CACHE=str(place))
    assert done.returncode == 4, done.stderr
    assert f"The cache {' '.join(str(place).split())} cannot be used: " in done.stderr
    assert said in done.stderr
    assert "Set CUDAMASTER_CACHE to a folder that can be written" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    told = json.loads(run("doctor", "--json", CUDAMASTER_CACHE=str(place)).stdout)
    (cache,) = [finding for finding in told["findings"] if finding["what"] == "cache"]
    assert not cache["found"]
    assert said in cache["detail"]
    assert told["devices"] == {"cuda": False, "cpu": False}


@pytest.mark.slow(but=["$"])
@pytest.mark.parametrize("sign", ["\n", "$"])
def test_a_folder_for_temporary_files_that_cannot_be_named_is_refused(sign: str, tmp_path: Path) -> None:
    """The judge of many candidates reads its file line by line, and nvcc hands paths to a shell."""
    place = tmp_path / f"two{sign}parts"
    place.mkdir()
    done = run("evaluate", "relu", str(KERNEL), "--device", "cpu", TMPDIR=str(place))
    assert done.returncode == 4, done.stderr
    assert "error: The folder for temporary files, " in done.stderr
    assert "Set TMPDIR to another folder." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "relu", str(KERNEL)],
        ["suite", "--tasks", "relu"],
        ["baselines", "relu"],
        ["compare", str(KERNEL), str(KERNEL), "--task", "relu"],
        ["sanitize", "relu", str(KERNEL)],
        ["profile", "dot_product"],
        ["audit", "relu"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_builds_names_an_unusable_cache(words: list[str], tmp_path: Path) -> None:
    """One line, and an end."""
    done = run(*words, "--device", "cpu", cwd=tmp_path, CUDAMASTER_CACHE="/proc/c")
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: The cache /proc/c cannot be used: /proc/c cannot be made")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "bench"])
def test_make_builds_into_the_cache_of_the_command_that_it_suggests(place: str) -> None:
    """`make demo` had filled one of its own, so that the next command built everything anew."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CUDAMASTER_CACHE", "MAKEFLAGS")}
    done = subprocess.run(
        ["make", "--dry-run", "--print-data-base", "-C", str(resources.root() / place)],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert "cudamaster" in done.stdout
    assert "CUDAMASTER_CACHE =" not in done.stdout


def test_a_cache_may_be_named_by_its_place_below_the_home(tmp_path: Path) -> None:
    """As a file of settings does that no shell reads; it once was a folder named ~ where one happened to be."""
    told = json.loads(run("doctor", "--json", cwd=tmp_path, CUDAMASTER_CACHE="~/mine", HOME=str(tmp_path)).stdout)
    (cache,) = [finding for finding in told["findings"] if finding["what"] == "cache"]
    assert (cache["found"], cache["detail"]) == (True, str(tmp_path / "mine"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_home_without_room_for_a_cache_is_named(tmp_path: Path) -> None:
    """By default the cache is below the user's home, which need not be a folder that can be written."""
    (tmp_path / "home").write_text("")
    environment = {key: value for key, value in os.environ.items() if key not in ("CUDAMASTER_CACHE", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-m", "cudamaster", "evaluate", "relu", str(KERNEL), "--device", "cpu"],
        capture_output=True, text=True, env={**environment, "HOME": str(tmp_path / "home")}, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert f"{tmp_path / 'home'} is no folder. Fix that, or set CUDAMASTER_CACHE to a folder" in done.stderr


def test_a_cache_without_room_is_named(tmp_path: Path) -> None:
    """A disk that is full, or has no locks, takes no file: here one may not be longer than nothing."""
    code = (
        "import resource, sys\nfrom cudamaster.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nsys.argv[0] = 'cudamaster'\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, "evaluate", "relu", str(KERNEL), "--device", "cpu"],
        capture_output=True, text=True, env={**os.environ, "CUDAMASTER_CACHE": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert f"The cache {tmp_path} cannot be used: no file can be made and locked there: File too large." in done.stderr
