"""The command line as a user meets it: output, exit codes, one clear line for each mistake."""

import contextlib
import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cudamaster.cli import kernel_file, main
from cudamaster.cli.compare import compare
from cudamaster.cli.doctor import examine
from cudamaster.cli.kernel_file import read_kernel
from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision, Status, Verdict
from cudamaster.devices.choose import why_not_cuda
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.runs.record import read_record
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.workbench.evaluation import Workbench

BINARY = str(Path(__file__).parent / "kept" / "program")  # how a program begins; an interpreter may be too large


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cudamaster ARGUMENTS` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def test_help_names_commands_and_exit_codes() -> None:
    """The first thing that a person types answers."""
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("optimize", "evaluate", "tasks", "doctor", "Exit codes"))


def test_help_imports_nothing_heavy() -> None:
    """`--help` stays quick because nothing heavy is imported for it."""
    heavy = ("litellm", "numpy", "skimage", "pydantic", "tree_sitter", "rich", "jinja2", "yaml")
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom cudamaster.cli import main\n"
        f"CliRunner().invoke(main, ['--help'])\nprint([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


KERNEL = Path(__file__).parent.parent / "cudamaster/playbook/dot_product/fp32/1_shuffle_reduction.cu"
RESULTS = Path(__file__).parent.parent / "results" / "h200"
CALIBRATION = resources.profiles() / "nvidia_h200" / "throughputs.csv"
BF16, FP32 = (RESULTS / f"spmv_csr_{kind}" / "best.cu" for kind in ("bf16", "fp32"))

ERRORS: dict[str, tuple[list[str], int, str, dict[str, str]]] = {
    "unknown task": (["optimize", "spmv_crs"], 2, "spmv_csr", {}),
    "no task": (["optimize"], 2, "tasks", {}),
    "unknown option": (["optimize", "--frobnicate"], 2, "frobnicate", {}),
    "no rounds": (["optimize", "spmv_csr", "-R", "0"], 2, "-R", {}),
    "missing file": (["evaluate", "spmv_csr", "no_such.cu"], 2, "no_such.cu", {}),
    "binary file": (["evaluate", "spmv_csr", BINARY], 2, "binary", {}),
    "a folder as file": (["evaluate", "spmv_csr", "."], 2, "directory", {}),
    "missing card": (["tasks", "nowhere.yaml"], 2, "There is no card nowhere.yaml.", {}),
    "a temperature that is no number": (["optimize", "relu", "--temperature", "nan"], 2, "nan is not a number", {}),
    "a path as name": (["tasks", "../tasks/relu"], 2, "Unknown task '../tasks/relu'", {}),
    "no run to resume": (["optimize", "--resume", "nowhere"], 6, "nowhere", {}),
    "no compiler": (["baselines", "dot_product", "--device", "cpu"], 4, "g++-of-nobody", {"CXX": "g++-of-nobody"}),
    "no compiler for a kernel": (
        ["evaluate", "dot_product", str(KERNEL), "--device", "cpu"],
        4,
        "g++-of-nobody",
        {"CXX": "g++-of-nobody"},
    ),
    "a compiler that does not run": (
        ["evaluate", "dot_product", str(KERNEL), "--device", "cpu"],
        4,
        "does not run",
        {"CXX": "/bin/false"},
    ),
    "an endless file": (["evaluate", "spmv_csr", "/dev/zero"], 2, "larger than", {}),
    "a harness nowhere": (["harness", "sorting", "-o", "/nowhere/h.cu"], 2, "/nowhere/h.cu", {}),
    "a binary region": (["harness", "sorting", "--region", BINARY], 2, "binary", {}),
    "an unknown task among others": (["baselines", "sorting", "nowhere"], 2, "nowhere", {}),
    **{
        f"too many calls, {calls}": (["evaluate", "spmv_csr", str(KERNEL), "--calls", calls], 2, "<=10000", {})
        for calls in ("2000000000", "99999999999999999999999")
    },
    **{
        f"a kernel of the other precision, {command[0]}": (command, 2, f"Add --precision {kind}.", {})
        for kind, command in [
            ("bf16", ["evaluate", "spmv_csr", str(BF16)]),
            ("bf16", ["profile", "spmv_csr", str(BF16)]),
            ("bf16", ["sanitize", "spmv_csr", str(BF16)]),
            ("bf16", ["compare", str(BF16), str(BF16), "--task", "spmv_csr"]),
            ("bf16", ["harness", "spmv_csr", "--region", str(BF16)]),
            ("bf16", ["prompt", "spmv_csr", "--role", "planner", "--candidate", str(BF16)]),
            ("fp32", ["evaluate", "spmv_csr", str(FP32), "--precision", "bf16"]),
        ]
    },
    **{
        f"two that contradict, {' '.join(words)}": (
            [*command, *words],
            2,
            f"{words[0]} and {words[1]} contradict each other. Give one of them.",
            {},
        )
        for command, words in [
            (["profile", "spmv_csr"], ["--full", "--none"]),
            (["profile", "spmv_csr"], ["--filtered", "--none"]),
            (["profile", "spmv_csr"], ["--filtered", "--full"]),
            (["show", "nowhere"], ["--diff", "--no-diff"]),
        ]
    },
    **{
        f"calls of what is not timed, {words[0]}": ([*words, "--check-only", "--calls", "5"], 2, "nothing is timed", {})
        for words in (["evaluate", "spmv_csr", str(FP32)], ["vendor", "dot_product", "--device", "cpu"])
    },
    "out is a file": (["optimize", "dot_product", "--device", "cpu", "--out", sys.executable], 2, "--out", {}),
    "a suite's out is a file": (
        ["suite", "--tasks", "relu", "--device", "cpu", "--out", sys.executable],
        2,
        "--out",
        {},
    ),
    **{
        f"an unwritable place, {' '.join(words[:1] + words[-2:])}": (words, 2, words[-2], {})
        for words in [
            ["report", str(RESULTS / "spmv_csr_bf16"), "--html", "/proc/c/page.html"],
            ["report", str(RESULTS / "spmv_csr_bf16"), "--csv", "/proc/c/table.csv"],
            ["report", str(RESULTS / "spmv_csr_bf16"), "--figures", "/proc/c"],
            ["show", str(RESULTS / "spmv_csr_bf16"), "--html", "/proc/c/page.html"],
            ["audit", "relu", "--device", "cpu", "--out", "/proc/c/audit.jsonl"],
            ["audit", "relu", "--device", "cpu", "--save", "/proc/c/audit"],
            ["vendor", "dot_product", "--device", "cpu", "--check-only", "--save", "/proc/c/vendor.json"],
            ["harness", "relu", "-o", "/proc/c/harness.cu"],
            ["optimize", "relu", "--device", "cpu", "--record", "/proc/c/record"],
            ["suite", "--tasks", "relu", "--device", "cpu", "--record", "/proc/c/record"],
            ["calibrate", "--gpu", "NVIDIA H200", "--from", str(CALIBRATION), "--out", "/proc/c"],
        ]
    },
    "a full disk": (["report", str(RESULTS / "spmv_csr_bf16"), "--csv", "/dev/full"], 4, "No space left", {}),
}


@pytest.mark.slow(but=["unknown option"])
@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_gets_one_clear_line(name: str) -> None:
    """The line names the thing and the fix; the exit code is the documented one; there is no traceback."""
    arguments, code, said, environment = ERRORS[name]
    done = run(*arguments, **environment)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "correct" not in done.stdout, "something ran before the mistake was seen"
    if done.stderr.startswith("error:"):
        assert done.stderr.count("\n") <= 2


def test_a_bad_card_is_named(tmp_path: Path) -> None:
    """A user's own card with a fault is a CardError, exit 3."""
    card = tmp_path / "mine.yaml"
    card.write_text("id: 1\nname: mine\n")
    done = run("tasks", str(card))
    assert done.returncode == 3
    assert str(card) in done.stderr


def test_a_bad_card_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has the rest, names it, and ends with the code of a card that cannot be used."""
    bench = tmp_path / "bench"
    shutil.copytree(resources.bench(), bench)
    (bench / "tasks" / "relu.yaml").write_text("id: 1\nname: relu\n")
    monkeypatch.setattr(resources, "bench", lambda: bench)
    done = CliRunner().invoke(main, ["tasks", "--json"])
    assert done.exit_code == 3
    assert len(json.loads(done.stdout)) == 49
    assert "relu.yaml" in done.stderr


def test_names_that_are_nearly_right() -> None:
    for words, near in (
        (["tasks", "spmv_cs"], "spmv_csr"),
        (["optimize", "relu", "--strategy", "cudaforg"], "cudaforge"),
        (["audit", "--kind", "zeroes"], "zeros"),
    ):
        done = run(*words)
        assert done.returncode == 2
        assert near in done.stderr.partition("Did you mean")[2], done.stderr


def test_help_is_not_cut_and_tells_of_the_strategies() -> None:
    from cudamaster.strategies.registry import STRATEGIES

    for command in ("", "metrics"):
        assert "..." not in run(*command.split(), "--help").stdout.partition("Commands:")[2]
    told = " ".join(run("optimize", "--help").stdout.split())
    assert all(strategy.summary in told for strategy in STRATEGIES.values())


def test_a_kernel_out_of_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input, a pipe with a writer, and one without, which must not block forever."""
    command = [sys.executable, "-m", "cudamaster", "harness", "relu", "--region"]
    text = baseline_region(cards.load("relu"), Precision.FP32)
    card = cards.load("relu")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=(text,))
    writing.start()
    assert read_kernel(pipe, card, "fp32") == text
    writing.join()
    monkeypatch.setattr(kernel_file, "_PIPE_LIMIT_S", 0.1)
    with pytest.raises(UsageError, match="nobody wrote to this pipe"):
        read_kernel(pipe, card, "fp32")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read_kernel(Path("-"), card, "fp32")
    told = subprocess.run([*command, "-"], input=text, capture_output=True, text=True, check=False)
    assert "relu_optimized" in told.stdout, told.stderr


@pytest.mark.skipif(why_not_cuda() is None, reason="this machine has a GPU")
def test_a_gpu_where_there_is_none() -> None:
    """Asking for a GPU that is not there fails at once and says what else to do."""
    done = run("evaluate", "spmv_csr", str(FP32), "--device", "cuda")
    assert done.returncode == 4
    assert "--device cpu" in done.stderr


def test_tasks_for_people_and_programs() -> None:
    """The list and a card, as a table and as JSON."""
    listed = json.loads(run("tasks", "--json").stdout)
    assert listed["spmv_csr"]["timed_cases"] == 6
    shown = run("tasks", "spmv_csr").stdout
    assert "row_offsets[i]" in shown
    assert 'extern "C" void spmv_csr_bf16_optimized(' in shown
    assert json.loads(run("tasks", "spmv_csr", "--json").stdout)["weight"] == "nnz"


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


@pytest.mark.parametrize("sign", ["\n", "$"])
def test_a_folder_for_temporary_files_that_cannot_be_named_is_refused(sign: str, tmp_path: Path) -> None:
    """The judge of many candidates reads its file line by line, and nvcc hands paths to a shell."""
    place = tmp_path / f"two{sign}parts"
    place.mkdir()
    done = run("evaluate", "dot_product", str(KERNEL), "--device", "cpu", TMPDIR=str(place))
    assert done.returncode == 4, done.stderr
    assert "error: The folder for temporary files, " in done.stderr
    assert "Set TMPDIR to another folder." in done.stderr


@pytest.mark.slow(but=["compare"])
@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "dot_product", str(KERNEL)],
        ["suite", "--tasks", "relu"],
        ["baselines", "relu"],
        ["compare", str(KERNEL), str(KERNEL), "--task", "dot_product"],
        ["sanitize", "dot_product", str(KERNEL)],
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


def test_doctor_tells_of_a_disk_that_has_no_room_for_a_first_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build would find out after a while."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    (found,) = [finding for finding in examine() if finding.what == "cache"]
    assert not found.found
    assert found.detail == f"{tmp_path} is on a disk with 3.0 MB left, and a first build takes 150 MB"


def test_a_home_without_room_for_a_cache_is_named(tmp_path: Path) -> None:
    """By default the cache is below the user's home, which need not be a folder that can be written."""
    (tmp_path / "home").write_text("")
    environment = {key: value for key, value in os.environ.items() if key not in ("CUDAMASTER_CACHE", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-m", "cudamaster", "evaluate", "dot_product", str(KERNEL), "--device", "cpu"],
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
        [sys.executable, "-c", code, "evaluate", "dot_product", str(KERNEL), "--device", "cpu"],
        capture_output=True, text=True, env={**os.environ, "CUDAMASTER_CACHE": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert f"The cache {tmp_path} cannot be used: no file can be made and locked there: File too large." in done.stderr


@pytest.mark.parametrize("words", [("-R",), ("-D",), ("--examples",), ("--strategy", "contrastive", "--set")])
def test_no_number_is_taken_that_a_run_folder_cannot_hold(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A run that could not be read back is not started."""
    large = str(10**400)
    value = f"islands={large}" if words[-1] == "--set" else large
    done = run("optimize", "relu", *words, value, "--out", str(tmp_path / "runs"), "--device", "cpu")
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "runs").exists()


def test_evaluate_a_wrong_kernel(tmp_path: Path) -> None:
    """Exit 1, the status, and which element is wrong."""
    kernel = tmp_path / "zeros.cu"
    kernel.write_text(
        'extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) '
        "{ cudaMemset(out, 0, 4); }\n"
    )
    done = run("evaluate", "dot_product", str(kernel), "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "wrong" in done.stdout
    assert "the only element; zero" in done.stdout
    assert "expected" in done.stdout
    assert "allowed" in done.stdout
    as_json = run("evaluate", "dot_product", str(kernel), "--device", "cpu", "--json")
    assert json.loads(as_json.stdout)["status"] == "wrong"


@pytest.mark.parametrize(("task", "rounds"), [("layer_norm", 1)])
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


def test_the_harness_is_one_file_that_builds_alone(tmp_path: Path) -> None:
    """`harness` writes what a person can fill in; an unreachable region file is a usage error."""
    target = tmp_path / "h.cu"
    assert run("harness", "sorting", "--precision", "bf16", "-o", str(target)).returncode == 0
    text = target.read_text()
    assert text.count(">>> CANDIDATE REGION") == 1
    assert "nvcc" in text[:900]
    assert "sorting_bf16_optimized" in text
    assert run("harness", "sorting", "--region", "nowhere.cu").returncode == 2


@pytest.mark.slow
def test_a_harness_that_was_filled_in_is_a_kernel(tmp_path: Path) -> None:
    """Its region is judged, and line numbers are the file's; for another precision the error says what to add."""
    target = tmp_path / "h.cu"
    assert run("harness", "vector_add", "-o", str(target)).returncode == 0
    words = ("evaluate", "vector_add", str(target), "--device", "cpu", "--check-only")
    assert run(*words).returncode == 0
    lines = target.read_text().split("\n")
    at = next(number for number, line in enumerate(lines, 1) if "void vector_add_kernel_optimized" in line)
    target.write_text("\n".join([*lines[:at], "    nonsense;", *lines[at:]]))
    wrong = run(*words)
    assert wrong.returncode == 1
    assert f":{at + 1}:5: error" in wrong.stdout
    other = run(*words, "--precision", "bf16")
    assert other.returncode == 2
    assert other.stderr.endswith("it has vector_add_optimized. Add --precision fp32.\n")


def test_the_line_in_a_harness_finds_its_files(tmp_path: Path) -> None:
    """Away from the checkout and under a name of one's own too; a folder may have a space in its name."""
    (tmp_path / "my kernels").mkdir()
    done = run("harness", "relu", "-o", "my kernels/h.cu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "my kernels" / "h.cu").read_text()
    words = shlex.split(next(line for line in text.splitlines() if " nvcc " in line))
    sources = [word for word in words if word.endswith(".cu")]
    assert sources[0] == "my kernels/h.cu"
    assert [(tmp_path / word).is_file() for word in sources] == [True] * 3
    assert all((tmp_path / word[2:]).is_dir() for word in words if word.startswith("-I"))
    assert words[-4:] == ["-o", "my kernels/h", "&&", "./my kernels/h"]
    in_the_checkout = run("harness", "relu", cwd=resources.root()).stdout
    assert "-Ibench/include -Ibench relu_harness.cu bench/harness/judge.cu" in in_the_checkout


@pytest.mark.slow
def test_the_harness_of_one_file_judges_by_itself(tmp_path: Path) -> None:
    """Built in one piece, it starts itself as the workers of baseline and candidate."""
    device, target = CpuDevice(), tmp_path / "h.cu"
    assert run("harness", "spmv_csr", "-o", str(target)).returncode == 0
    sources = {"h": target, **{name: resources.bench() / "harness" / f"{name}.cu" for name in ("judge", "worker")}}
    objects = []
    for name, source in sources.items():
        compiled = device.compile(source.read_text(), ["-O1", "-std=c++17"], name, tmp_path)
        assert compiled.object is not None, compiled.log
        objects.append(compiled.object)
    linked = device.link(objects, tmp_path / "harness")
    assert linked.object is not None, linked.log
    done = subprocess.run([linked.object, "--cases", "verify"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert lines[-1]["event"] == "end"
    assert sum(line["event"] == "check" and line["ok"] for line in lines) == 3 * 11
    for senseless in ("--calls abc", "--calls -1", "--calls 1e99", "--calls 99999999999999999999", "--seed 1x",
                      "--call-limit nan", "--cases some", "--pairs 0", "--calls"):  # fmt: skip
        done = subprocess.run([linked.object, *senseless.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 64, senseless
        assert "cannot read --" in done.stderr


@pytest.mark.slow
def test_a_kernel_compared_with_itself_is_the_same() -> None:
    """On a device with modelled times, only these exist, and the help says so."""
    done = run("compare", str(KERNEL), str(KERNEL), "--task", "dot_product", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "only a kernel compared with its own text is the same" in " ".join(run("compare", "--help").stdout.split())


def variants(folder: Path, **edits: tuple[str, str]) -> dict[str, str]:
    """Files with the baseline of spmv_csr, each with an edit."""
    code = baseline_region(cards.load("spmv_csr"), Precision.FP32)
    files = {}
    for name, (old, new) in edits.items():
        assert old in code
        files[name] = str(folder / f"{name}.cu")
        Path(files[name]).write_text(code.replace(old, new))
    return files


OF_SPMV = ["--task", "spmv_csr", "--device", "cpu"]


@pytest.mark.slow
def test_compare_says_which_is_faster(tmp_path: Path) -> None:
    """Its exit code says it too: a kernel that works three times is slower."""
    launch = "    spmv_csr_kernel_optimized<<<"
    files = variants(tmp_path, fast=("", ""), slow=(launch, f"    for (int k = 0; k < 3; ++k)\n    {launch}"))
    slower = run("compare", files["fast"], files["slow"], *OF_SPMV, "--calls", "10")
    assert slower.returncode == 11, slower.stdout + slower.stderr
    assert "slower" in slower.stdout


@pytest.mark.slow
def test_compare_names_the_one_that_is_wrong(tmp_path: Path) -> None:
    """A wrong kernel is neither faster nor slower."""
    files = variants(tmp_path, fast=("", ""), wrong=("y[row] = sum", "y[row] = 0 * sum"))
    wrong = run("compare", files["fast"], files["wrong"], *OF_SPMV)
    assert wrong.returncode == 1
    assert f"{files['wrong']}: wrong" in wrong.stdout


def test_compare_is_unsure_where_nothing_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are right, and no case has a time: a GPU that is too hot, a kernel that cannot be modelled."""
    untimed = Verdict("c0ffee", "cpu", True, Status.CORRECT, "11 cases right")
    monkeypatch.setattr(Workbench, "compare", lambda *_: (untimed, untimed))
    words = ["compare", str(KERNEL), str(KERNEL), "--task", "dot_product", "--device", "cpu"]
    for more in ([], ["--json"]):
        done = CliRunner().invoke(compare, [*words[1:], *more])
        assert done.exit_code == 12, done.output
        assert more or "unsure" in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tasks", "nowhere", "--json"], 2, "nowhere"),
        (["evaluate", "spmv_csr", "nowhere.cu", "--json"], 2, "nowhere.cu"),
        (["optimize", "--resume", "nowhere", "--json"], 6, "nowhere"),
        (["optimize", "--json", "--frobnicate"], 2, "--frobnicate"),
    ],
)
def test_programs_get_errors_as_json(arguments: list[str], code: int, said: str) -> None:
    """With --json stdout is one object whatever happens; people read the same on stderr."""
    done = run(*arguments)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == error["exit_code"] == code
    assert said in error["reason"]
    assert error["fix"]
    assert said in done.stderr


def test_sizes_of_a_card_are_exact() -> None:
    """A size of seven digits is not rounded to six: it is what a kernel has to work for."""
    assert " 1048576 " in run("tasks", "dot_product").stdout


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


@pytest.mark.slow(but=["*"])
@pytest.mark.parametrize("compiled", ["*", "*-fsanitize=thread*"])
def test_interrupted_beside_other_threads(compiled: str, tmp_path: Path) -> None:
    """Ctrl-C waits neither for a compiler nor for what looks for faults, which takes minutes where a kernel hangs."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-dM*|*-E*) exec g++ "$@";; '
        f'{compiled}) touch {tmp_path}/asleep; exec sleep 300;; esac\nexec g++ "$@" -O0\n'
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


@pytest.mark.slow
def test_a_right_kernel_timed_once_on_a_poor_terminal() -> None:
    """One call has no spread, and a terminal without µ still gets its table."""
    done = run("evaluate", "dot_product", str(KERNEL), "--device", "cpu", "--calls", "1",
               LC_ALL="C", PYTHONIOENCODING="ascii")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "?s:" in done.stdout
    assert "P = " in done.stdout
    assert "results are checked" in done.stdout


def test_a_refused_kernel_is_told_once(tmp_path: Path) -> None:
    """The reason is on one line, and nothing is said to be proven."""
    kernel = tmp_path / "empty.cu"
    kernel.write_text("")
    done = run("evaluate", "dot_product", str(kernel), "--device", "cpu")
    assert done.returncode == 1
    assert done.stdout.count("the region is empty") == 1
    assert "proven" not in done.stdout


def test_the_harness_does_not_replace_the_kernel(tmp_path: Path) -> None:
    """A kernel given as the region is not overwritten by its harness."""
    kernel = tmp_path / "mine.cu"
    kernel.write_text("// mine\n")
    done = run("harness", "sorting", "--region", str(kernel), "-o", str(kernel))
    assert done.returncode == 2
    assert kernel.read_text() == "// mine\n"


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


@pytest.mark.parametrize("columns", [40, 80])
def test_the_next_command_is_one_line_on_every_terminal(columns: int) -> None:
    """The terminal may break it; a line end of ours would make two commands of what is pasted, both broken."""
    kept = "results/h200/spmv_csr_bf16"
    told = on_a_terminal("show", str(resources.root() / kept), "--no-diff", columns=columns)
    command = told.split("Next: ")[1].splitlines()[0]
    assert shlex.split(command)[-1].endswith("candidate.o"), command


def test_the_next_command_works_when_pasted() -> None:
    """Also where `cudamaster` is not on the path, as after `make demo`."""
    done = run("tasks", PATH="/usr/bin:/bin")
    command = shlex.split(done.stdout.split("Next: ")[1].split(",")[0])
    command[command.index("NAME")] = "sorting"
    again = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"}, check=False
    )
    assert "sorting" in again.stdout, again.stderr


def test_the_readme_shows_the_committed_run() -> None:
    """Its example is what `show` says today of a run that lies in results/, as far as the dots."""
    text = (RESULTS.parent.parent / "README.md").read_text(encoding="utf-8")
    example = [line.strip() for line in text.partition("## What it looks like")[2].partition("## ")[0].splitlines()]
    first = next(at for at, line in enumerate(example) if line.startswith("$ cudamaster "))
    shown = [line for line in example[first + 1 : example.index("...")] if line]
    assert len(shown) > 20
    words = shlex.split(example[first])[2:]
    done = CliRunner().invoke(main, words, env={"COLUMNS": "100"})
    said = [line.strip() for line in done.stdout.splitlines()]
    assert shown == [line for line in said if line][: len(shown)]
