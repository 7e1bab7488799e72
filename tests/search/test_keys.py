"""No key of a model appears in the output, in run folders, or in any program that is started.

Runs are real: the command line in a process of its own, LiteLLM, a chat server that echoes what it was sent, the CPU
device with its compiler, judge and workers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_servers import ChatServer
from search_stand_ins import COMMAND, code, dot_product, plan

from cudamaster.core import keys
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Role
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.models import choose

HERE = Path(__file__).parent
NAMES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_API_KEY", "AZURE_AD_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY",
         "DATABRICKS_PASSWORD", "VERTEXAI_CREDENTIALS", "MY_SERVER_AUTH")  # fmt: skip
KEYS = {name: f"{name.lower()[::-1]}-7f3a9c51" for name in NAMES}
MARK = "7f3a9c51"  # in all of them
# The command line, on a task with one small timed case.
PROGRAM = """
import sys
from cudamaster.tasks import cards
from cudamaster.cli import main
from small_cards import small_card

card = small_card("dot_product")
cards.load = lambda name: card
main(sys.argv[1:])
"""
SHIMMED = ("as", "ld", "objcopy")


class Watched:
    """The command line in a process of its own, with keys in its environment, and a look at all that it starts."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._dumps = folder / "dumps"
        shims = folder / "shims"
        for made in (shims, self._dumps):
            made.mkdir(parents=True)
        for name in SHIMMED:  # a program reads its own environment, as a candidate's build step might
            shim = shims / name
            shim.write_text(
                f'#!/bin/sh\ncat /proc/self/environ > {self._dumps}/{name}.$$\nexec {shutil.which(name)} "$@"\n'
            )
            shim.chmod(0o755)
        environment = {
            **os.environ,
            **KEYS,
            "PATH": f"{shims}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(HERE.parent.parent))),
            # What a person sets who looks for a fault: both print requests with their headers.
            "LITELLM_LOG": "DEBUG",
            "OPENAI_LOG": "debug",
        }
        self.programs: dict[str, str] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._python = (Path("/proc") / str(self._process.pid) / "exe").readlink()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            for process in _descendants(self._process.pid):
                with contextlib.suppress(OSError):  # it is gone
                    program = (process / "exe").readlink()
                    if program == self._python:  # between fork and exec a child is still ourselves
                        continue
                    seen = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                    said = self.programs.get(program.name, "")
                    self.programs[program.name] = said + seen.decode(errors="replace")
            time.sleep(0.002)

    def kill(self) -> None:
        """End it as the system does, without a chance to clean up."""
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        out, err = self._process.communicate(timeout=240)
        self._over.set()
        self._watcher.join()
        for dump in self._dumps.iterdir():
            self.programs[f"{dump.stem} itself"] = self.programs.get(f"{dump.stem} itself", "") + dump.read_text()
        return self._process.returncode, out + err


def _descendants(pid: int) -> Iterator[Path]:
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in tasks.read_text().split():
                yield Path("/proc") / child
                yield from _descendants(int(child))


def echoing(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
    """Right answers, in each of which all keys stand, as from a proxy that puts its headers into the text."""
    leak = " ".join(KEYS.values())
    if role is Role.PLANNER:
        return 200, plan(f"Sum in a register {leak}")[1]
    if role is Role.COMPILER:
        return 200, f"```\n{COMMAND}\n```"
    return 200, code(dot_product(f"total += X[i] * Y[i];  // {leak} {time.time_ns()}"))[1]


def holding_a_key(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]


SEARCH = ("optimize", "dot_product", "-R", "1", "-D", "0", "--device", "cpu", "--model", "openai/x")


@pytest.mark.slow
def test_a_whole_run_shows_its_keys_to_nobody_but_the_server(tmp_path: Path) -> None:
    """Not what it prints, not what it keeps, no compiler, assembler, linker, judge or worker, with debug logs on."""
    with ChatServer(echoing) as server:
        run = Watched(tmp_path, *SEARCH, "--base-url", server.url)
        code, printed = run.end()
    assert code == 0, printed
    assert all(KEYS["OPENAI_API_KEY"] in headers["Authorization"] for headers in server.headers)
    assert "Sum in a register ***" in printed, "the echo was taken out of the reply"
    assert MARK not in printed
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(list((folder / "exchanges").iterdir())) == 3
    assert len(list((folder / "verdicts").iterdir())) == 2
    assert holding_a_key(tmp_path / "runs") == []
    assert {f"{name} itself" for name in SHIMMED} <= set(run.programs), "the build went through the stand-ins"
    assert {"run", "debug"} <= set(run.programs), "both builds of the candidate were seen at work"
    assert any(name.startswith("dot_product-") for name in run.programs), "judge and baseline too"
    assert any("cc1plus" in name for name in run.programs), sorted(run.programs)
    assert [name for name, seen in run.programs.items() if MARK in seen] == []
    assert "uname" not in run.programs, "which the standard library starts with our environment"
    assert all("PATH=" in seen for name, seen in run.programs.items() if name.endswith("itself"))


@pytest.mark.slow
def test_a_failed_run_shows_no_key(tmp_path: Path) -> None:
    """The server refuses the second call and repeats what it got; the error is shown without that."""

    def refusing(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        if role is Role.PLANNER:
            return echoing(role, messages)
        return 401, f"Incorrect API key provided: {' '.join(KEYS.values())}; headers: Bearer {KEYS['OPENAI_API_KEY']}"

    with ChatServer(refusing) as server:
        code, printed = Watched(tmp_path, *SEARCH, "--base-url", server.url).end()
    assert code == 5, printed
    assert "the key was refused" in printed
    assert "--resume" in printed
    assert MARK not in printed
    assert list((tmp_path / "runs").glob("*/sessions.json"))
    assert holding_a_key(tmp_path / "runs") == []


@pytest.mark.slow
def test_a_killed_run_leaves_no_key(tmp_path: Path) -> None:
    """SIGKILL while the second call is out; what is there, half-written files too, holds none."""
    asked = threading.Event()

    def hanging(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        if role is not Role.PLANNER:
            asked.set()
            time.sleep(3)
        return echoing(role, messages)

    with ChatServer(hanging) as server:
        run = Watched(tmp_path, *SEARCH, "--base-url", server.url)
        asked.wait(60)
        run.kill()
        code, printed = run.end()
    assert asked.is_set(), printed
    assert code == -signal.SIGKILL
    assert MARK not in printed
    assert list((tmp_path / "runs").glob("*/exchanges/0001_planner.json"))
    assert holding_a_key(tmp_path / "runs") == []


@pytest.mark.slow(but=["openai/x-http://127.0.0.1:1/v1?api_key=yek_ipa_ianepo-7f3a9c51-a query"])
@pytest.mark.parametrize(
    ("url", "part"),
    [
        (f"http://127.0.0.1:1/v1?api_key={KEYS['OPENAI_API_KEY']}", "a query"),
        (f"http://me:{KEYS['OPENAI_API_KEY']}@127.0.0.1:1/v1", "a user name or password"),
        (f"http://127.0.0.1:1/v1#{KEYS['OPENAI_API_KEY']}", "a fragment"),
        (f"http://127.0.0.1:1/{KEYS['OPENAI_API_KEY']}/v1", "a key of the environment"),
    ],
)
@pytest.mark.parametrize("model", ["openai/x", "playbook"])
def test_an_address_with_a_key_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, part: str, model: str
) -> None:
    """Also where no server will be asked, and also when it comes from the environment; the address is not repeated."""
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    for given, environ in ((url, {}), (None, {"CUDAMASTER_BASE_URL": url})):
        with pytest.raises(UsageError, match=part) as caught:
            choose.choose(environ, model, base_url=given)
        assert MARK not in str(caught.value)
    ran = subprocess.run(
        [sys.executable, "-m", "cudamaster", "optimize", "dot_product", "--model", model, "--base-url", url],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **KEYS, "PYTHONPATH": str(HERE.parent.parent)},
    )
    assert ran.returncode == 2
    assert part in ran.stderr
    assert MARK not in ran.stdout + ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1/v1", "//host/v1", ""]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        keys.checked_url(url)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://[::1]:8443/v1", "https://api.example.com"])
def test_plain_addresses_are_taken(url: str) -> None:
    assert keys.checked_url(url) == url


def test_a_value_that_may_stand_for_itself_does_not_spoil_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that ask for no key are given "ollama" or "none"; code may have such a word in it."""
    monkeypatch.setenv("OPENAI_API_KEY", "ollama")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
    assert keys.reply_without_keys("int ollama;") == "int ollama;"
    assert keys.reply_without_keys(f"// {KEYS['ANTHROPIC_API_KEY']}") == "// ***"
    assert keys.message_without_keys("sent ollama, sk-abcdef123 and Bearer xyz") == "sent ***, *** and Bearer ***"
    assert keys.checked_url("http://ollama:11434/v1") == "http://ollama:11434/v1"


def test_a_key_that_json_spells_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as JSON it would stand in the plan, on the screen and in every later prompt."""
    key = KEYS["ANTHROPIC_API_KEY"]
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    spelt = "".join(f"\\u{ord(sign):04X}" if at % 2 else sign for at, sign in enumerate(key))
    assert keys.reply_without_keys(f'{{"plan": "{spelt} \\u00e4"}}') == '{"plan": "*** \\u00e4"}'


def test_nvcc_gets_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for it writes down what it was started with; what it needs to find things is there."""
    for name, value in {**KEYS, "CPATH": "/opt/include", "LD_LIBRARY_PATH": "/opt/lib", "MY_SETTING": "x"}.items():
        monkeypatch.setenv(name, value)
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(
        f"#!/bin/sh\ncat /proc/self/environ >> {tmp_path}/dump\necho 'release 13.0,'\n"
        'case "$*" in *candidate.o*) : > candidate.o;; esac\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setattr("cudamaster.devices.cuda.find_nvcc", lambda: nvcc)
    device = CudaDevice(LocalGpu(0, "H200", "GPU-1", "9.0", "1", "1", "1", "1", "1"))
    assert device.toolkit == "13.0"
    assert device.compile("int x;", [], "candidate", tmp_path / "build").object is not None
    seen = (tmp_path / "dump").read_text()
    assert MARK not in seen
    assert re.findall(r"\b(CPATH|LD_LIBRARY_PATH|PATH|MY_SETTING)=", seen).count("CPATH") == 2
    assert "LD_LIBRARY_PATH=/opt/lib" in seen
    assert "MY_SETTING" not in seen
