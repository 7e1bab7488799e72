"""The server for coding agents, by the SDK's own client: stdio, HTTP, two at once, cancelled, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner
from test_library import KERNEL

from cudamaster.cli import main
from cudamaster.core.errors import BudgetSpent, RunFolderError, UsageError
from cudamaster.core.values import Candidate, Hold, Precision
from cudamaster.devices import cases, process
from cudamaster.serving.answers import rounded
from cudamaster.serving.catalog import Catalog
from cudamaster.serving.kernels import in_folder
from cudamaster.serving.ledger import Found, Ledger, Limits
from cudamaster.serving.tools import Tools

if TYPE_CHECKING:  # it takes a second, and each test process reads this file
    from mcp.client.client import Client

WRONG = KERNEL.replace("i < N", "i < N - 1")
HANGS = KERNEL.replace("if (i < N)", "for (volatile int k = 0; k < 1; k = k * 1) { }\n    if (i < N)")
TOKEN = "a token of more than sixteen letters"
SHORT = 2048  # bytes of a result


def command(folder: Path, *options: str, device: str = "cpu") -> list[str]:
    return [sys.executable, "-m", "cudamaster", "mcp", "--device", device, "--folder", str(folder), *options]


@contextmanager
def over_http(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and its address."""
    environment = {**os.environ, "CUDAMASTER_MCP_TOKEN": TOKEN}
    words = command(folder, "--http", "--port", "0", *options)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline()
            assert TOKEN not in said
            yield server, said.split()[2].rstrip(",")
        finally:
            server.send_signal(signal.SIGTERM)
            server.stderr.read()
            assert server.wait(20) is not None


async def call(client: Client, tool: str, lines: list[str] | None = None, /, **arguments: Any) -> tuple[bool, Any, str]:
    """Whether it is an error, the structure, and the text; `lines` gets its progress."""

    async def hear(_seconds: float, _total: float | None, line: str | None) -> None:
        if lines is not None:
            lines.append(str(line))

    result = await client.call_tool(tool, arguments, progress_callback=hear)
    return bool(result.is_error), result.structured_content, result.content[0].text


def programs_of(server: int) -> set[int]:
    """The processes below a server that still run."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    below, found = {server}, set[int]()
    while below := {process for process, parent in parents.items() if parent in below}:
        found |= below
    return found


def still_run(processes: set[int]) -> bool:
    """Whether any does, with another parent perhaps."""
    states = [Path(f"/proc/{process}/stat") for process in processes]
    return any(state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z" for state in states)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a server, with a kernel in it and one beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "right.cu").write_text(KERNEL)
    (folder.parent / "outside.cu").write_text(KERNEL)
    (folder / "link.cu").symlink_to(folder.parent / "outside.cu")
    return folder


def test_an_agent_over_stdio(place: Path) -> None:
    """It finds a task, reads what to do, writes a kernel from that alone, tries tricks, and spends its budget."""

    async def agent() -> None:
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client

        words = command(place, "--max-evaluations", "5")
        parameters = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {
                "list_tasks",
                "read_card",
                "evaluate",
                "compare",
                "profile",
                "sanitize",
                "best_so_far",
            }
            assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
            _, listed, _ = await call(client, "list_tasks", category="activation")
            names = [line.split(":")[0] for line in listed["suites"]["MSKernelBench"]["activation"]]
            assert "relu" in names
            _, card, _ = await call(client, "read_card", task="relu")
            assert card["declare"] == 'extern "C" void relu_optimized(float* output, const float* input, int N);'
            assert "relu_optimized" in card["start_from"]
            assert "max(0, input[i])" in card["what_it_computes"]

            lines: list[str] = []
            _, right, text = await call(client, "evaluate", lines, task="relu", kernel="file:right.cu")
            assert right["status"] == "correct"
            assert right["times"].startswith("modelled")
            assert right["left"] == {"evaluations": 4}
            assert json.loads(text) == right
            assert len(text.encode()) < SHORT
            assert any(line.startswith("relu (fp32)") for line in lines)
            whole = json.loads((await client.read_resource(right["whole"])).contents[0].text)
            assert whole["kernels"][0]["code"] == KERNEL
            assert whole["verdict"]["score"] == pytest.approx(right["P"], rel=1e-3)

            _, wrong, text = await call(client, "evaluate", task="relu", kernel=WRONG, check_only=True)
            assert wrong["status"] == "wrong"
            assert "output[1]" in wrong["log"]
            assert len(text.encode()) < SHORT
            for trick in (
                {"kernel": '#include "/etc/passwd"\n' + KERNEL},
                {"kernel": KERNEL, "command": f"nvcc -c candidate.cu -o candidate.o; touch {place}/made"},
            ):
                _, refused, text = await call(client, "evaluate", task="relu", **trick)
                assert refused["status"] == "rejected"
                assert "root:" not in text
            assert not (place / "made").exists()
            for given, said in (
                ({"task": "rleu", "kernel": KERNEL}, "Did you mean relu"),
                ({"task": str(place / "any.yaml"), "kernel": KERNEL}, "no name of a task"),
                ({"task": "relu", "kernel": "file:../outside.cu"}, "not in the folder"),
                ({"task": "relu", "kernel": "file:link.cu"}, "Links are not followed"),
                ({"task": "relu", "kernel": KERNEL, "precison": "bf16"}, "precison"),
                ({"task": "relu", "kernel": KERNEL, "precision": "fp16"}, "not in fp16"),
            ):
                failed, _, text = await call(client, "evaluate", **given)
                assert failed
                assert said in text
                assert "Traceback" not in text
            failed, _, text = await call(client, "compare", task="relu", first="baseline", second=KERNEL)
            assert failed
            assert "takes 2 evaluations, and 1 is left" in text
            _, clean, _ = await call(client, "sanitize", task="relu", kernel=f"kept:{right['kernel']}")
            assert clean["clean"]
            failed, _, text = await call(client, "evaluate", task="relu", kernel=KERNEL)
            assert failed
            assert "The budget of 5 evaluations is spent" in text

    asyncio.run(agent())


@pytest.mark.slow
def test_two_clients_over_http(place: Path) -> None:
    """One hangs and is cancelled: its programs are gone within seconds, and the other one has its own result."""

    async def hanging(client: Client, lines: list[str]) -> None:
        await call(client, "evaluate", lines, task="relu", kernel=HANGS, check_only=True)

    async def agents(server: int, address: str) -> None:
        from mcp.client.client import Client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        http = [create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"}) for _ in range(2)]
        async with (
            Client(streamable_http_client(address, http_client=http[0])) as one,
            Client(streamable_http_client(address, http_client=http[1]), mode="legacy") as other,
        ):
            theirs: list[str] = []
            task = asyncio.create_task(hanging(one, theirs))
            ours: list[str] = []
            _, profiled, text = await call(other, "profile", ours, task="relu", kernel="baseline")
            assert profiled["profiles"][0]["who"] == "baseline"
            assert len(text.encode()) < SHORT
            assert not any(line.startswith("relu (fp32)") for line in ours)
            while not any("cases done" in line for line in theirs):
                await asyncio.sleep(0.1)
                assert not task.done()
            running = programs_of(server)
            assert len(running) >= 3  # a judge, the baseline's worker and the kernel's
            task.cancel()
            began = time.monotonic()
            while still_run(running):
                await asyncio.sleep(0.05)
                assert time.monotonic() - began < 5
            _, next_one, _ = await call(other, "evaluate", task="relu", kernel=WRONG, check_only=True)
            assert next_one["status"] == "wrong"

    with over_http(place, "--record", str(place / "other")) as (server, address):
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accepted = {"Accept": "application/json, text/event-stream"}
        known = {**accepted, "Authorization": f"Bearer {TOKEN}"}
        assert httpx.post(address, json=ping, timeout=60, headers=accepted).status_code == 401
        assert (
            httpx.post(address, json=ping, timeout=60, headers={**known, "Authorization": "Bearer no"}).status_code
            == 401
        )
        assert httpx.post(address, json=ping, timeout=60, headers={**known, "Host": "evil.example"}).status_code == 421
        assert (
            httpx.post(address, json=ping, timeout=60, headers={**known, "Origin": "http://evil.example"}).status_code
            == 403
        )
        asyncio.run(agents(server.pid, address))
    ended = [json.loads(line) for line in (place / "other" / "ledger.jsonl").read_text().splitlines()]
    assert "cancelled" in [line.get("outcome") for line in ended]


def test_it_ends_with_its_client_and_says_nothing_but_the_protocol(place: Path) -> None:
    """In the middle of a call. The next server knows that the budget is spent."""
    words = command(place, "--max-evaluations", "1")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        arguments = {"task": "relu", "kernel": HANGS}
        for message in (
            {"id": 1, "method": "initialize", "params": about},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "evaluate", "arguments": arguments}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        began = time.monotonic()
        while not (running := programs_of(server.pid)):
            time.sleep(0.05)
            assert time.monotonic() - began < 60
        server.stdin.close()
        lines = server.stdout.read().splitlines()
        assert server.wait(10) == 0
    assert not still_run(running)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines)
    ledger = Ledger(place / "runs" / "mcp", Limits(evaluations=1))
    assert ledger.left == {"evaluations": 0}
    with pytest.raises(BudgetSpent, match="1 evaluations is spent"):
        ledger.begin("evaluate", "relu", 1)


@pytest.mark.gpu
def test_a_cancelled_call_frees_the_gpu(tmp_path: Path) -> None:
    """In the middle of a kernel that hangs; the next one is measured."""

    async def agent() -> None:
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client

        words = command(tmp_path, "--max-gpu-seconds", "600", device="cuda")
        parameters = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            lines: list[str] = []
            task = asyncio.create_task(call(client, "evaluate", lines, task="relu", kernel=HANGS))
            while not any("cases done" in line for line in lines):
                await asyncio.sleep(0.1)
                assert not task.done()
            task.cancel()
            _, measured, _ = await call(client, "evaluate", task="relu", kernel=KERNEL)
            assert measured["status"] == "correct"
            assert measured["times"] == "measured"
            assert 0 < measured["left"]["gpu_seconds"] < 600

    asyncio.run(agent())


def found(kernel: str, score: float | None, status: str = "correct") -> Found:
    return Found("relu", "fp32", "card", "GPU", kernel, status, score, score, score, "faster")


def test_budgets_and_the_best_outlast_a_server(tmp_path: Path) -> None:
    """Also one killed while it wrote, and two at once. A lucky measurement and a faulty kernel gain nothing."""
    first = Ledger(tmp_path, Limits(gpu_seconds=10))
    for number, each in enumerate(
        [found("a", 2.0), found("lucky", 1.5), found("lucky", 9.0), found("b", 5.0), found("b", None, "fault")], 1
    ):
        assert first.begin("evaluate", "relu", 1) == number
        first.end(number, "done", {"verdict": number}, [each])
    assert rounded(float("inf")) is None
    first.held(Hold("gpu", 0.0, 9.5, True))
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"held": 3, "un')  # cut
    second = Ledger(tmp_path, Limits(gpu_seconds=10, evaluations=6))
    assert [(one.found.kernel, one.call, one.found.score) for one in second.best("GPU", task="relu")] == [("a", 1, 2.0)]
    assert second.best("another GPU") == []
    assert second.begin("evaluate", "relu", 1) == 6
    assert second.left == {"evaluations": 0, "gpu_seconds": 0.5}
    second.end(6, "failed", given_back=1)
    assert second.left["evaluations"] == 1
    first.held(Hold("gpu", 0.0, 1.0, True))
    with pytest.raises(BudgetSpent, match="GPU seconds"):
        second.begin("evaluate", "relu", 1)
    assert json.loads(second.verdict("3"))["verdict"] == 3
    for name in ("../ledger", "7", "٣"):
        with pytest.raises(UsageError):
            second.verdict(name)
    kernel = Candidate("relu", Precision.FP32, KERNEL, "nvcc")
    first.keep(kernel)
    assert second.kernel(kernel.id) == kernel
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").touch()
    with pytest.raises(RunFolderError):
        Ledger(tmp_path / "photos", Limits())


def test_the_record_of_an_agents_folder_leads_nowhere_else(tmp_path: Path) -> None:
    """An agent that may write in its folder alone gains no other file by links in the server's record."""
    home, record = tmp_path / "home", tmp_path / "project" / "runs" / "mcp"
    home.mkdir()
    (home / "profile").write_text("mine")
    (home / "7.json").write_text('"secret"')
    ledger = Ledger(record, Limits(evaluations=1))
    (record / "verdicts" / "1.json").symlink_to(home / "profile")
    (record / "verdicts" / "7.json").symlink_to(home / "7.json")
    ledger.end(ledger.begin("evaluate", "relu", 1), "done", {"verdict": 1})
    assert json.loads(ledger.verdict("1"))["verdict"] == 1
    with pytest.raises(UsageError, match="no verdict"):
        ledger.verdict("7")
    with pytest.raises(BudgetSpent):
        Tools(Catalog(None), "cpu", tmp_path, ledger).evaluate(print, "relu", KERNEL, None, None, check_only=True)
    assert not any((record / "kernels").iterdir()), "what is not judged is not kept"
    (record / "kernels").rmdir()
    (record / "kernels").symlink_to(home)
    with pytest.raises(OSError, match="Not a directory"):
        ledger.keep(Candidate("relu", Precision.FP32, KERNEL, "nvcc"))
    assert ((home / "profile").read_text(), len(list(home.iterdir()))) == ("mine", 2)


def test_files_are_read_in_the_folder_alone(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "one.cu").write_text("text")
    (tmp_path / "out.cu").write_text("secret")
    (inside / "up").symlink_to(tmp_path)
    (inside / "link.cu").symlink_to(tmp_path / "out.cu")
    (inside / "keys.env").write_text("secret")
    os.mkfifo(inside / "pipe.cu")
    assert in_folder(inside, "deep/one.cu") == b"text"
    assert in_folder(inside, str(inside / "deep" / "one.cu")) == b"text"
    outside = ("../out.cu", "up/out.cu", "link.cu", str(tmp_path / "out.cu"))
    for name in (*outside, "keys.env", "pipe.cu", "none.cu", ".", "a\0.cu"):
        with pytest.raises(UsageError):
            in_folder(inside, name)


def test_one_suite_alone_is_served() -> None:
    catalog = Catalog("hgemm")
    assert catalog.load("hgemm_tn_fp32_128x128x64").name == "hgemm_tn_fp32_128x128x64"
    for name in ("relu", "hgemm_open_tn_fp32_128x128x64", "../relu", "x.yaml"):
        with pytest.raises(UsageError):
            catalog.load(name)


def test_work_ends_alone(tmp_path: Path) -> None:
    """Its programs, those of its pools, and its wait for a lock. Other work goes on, and hears of its own judges."""
    mine, other = process.Work(), process.Work()
    heard: dict[str, Any] = {}
    there = threading.Barrier(3)

    def pooled() -> None:
        there.wait()
        process.run_limited(["sleep", "30"], 60)

    def work() -> None:
        try:
            with mine.begun(), cases.judging("mine", tmp_path / "none", 3), process.threads(1) as pool:
                heard["mine"] = cases.progress(process.work.whose()[:1])
                pool.submit(pooled).result()
        except KeyboardInterrupt:
            heard["ended"] = True

    def waits() -> None:
        with (tmp_path / "lock").open("w") as file, other.begun():
            there.wait()
            try:
                process.lock(file.fileno(), process.fcntl.LOCK_EX)
            except KeyboardInterrupt:
                heard["gave up"] = True

    with (tmp_path / "lock").open("w") as held:
        process.fcntl.flock(held, process.fcntl.LOCK_EX)
        threads = [threading.Thread(target=work), threading.Thread(target=waits)]
        for thread in threads:
            thread.start()
        there.wait()
        with process.Work().begun():
            assert cases.progress(process.work.whose()) is None
        assert cases.progress() == "mine, waiting for the device"
        began = time.monotonic()
        mine.end()
        threads[0].join()
        assert "gave up" not in heard
        other.end()
        threads[1].join()
    assert time.monotonic() - began < 5
    assert heard == {"mine": "mine, waiting for the device", "ended": True, "gave up": True}
    with (tmp_path / "lock").open("w") as free:  # the abandoned wait gave it back
        for _ in range(50):
            try:
                process.fcntl.flock(free, process.fcntl.LOCK_EX | process.fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)
        else:
            pytest.fail("the lock is held")
    assert process.run_limited(["true"], 5).exit_code == 0


def test_without_the_sdk_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cudamaster.serving.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server.auth.provider", None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    told = CliRunner().invoke(main, ["mcp", "--folder", str(tmp_path)])
    assert told.exit_code == 2
    assert "cudamaster[mcp]" in told.stderr
    assert not (tmp_path / "runs").exists()
