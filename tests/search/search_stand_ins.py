# ruff: noqa: D102
"""Stand-ins for what a search needs from outside: cards, workbenches, models, and a chat server.

`ScriptedWorkbench` reads a candidate's verdict from a comment in its code.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cudamaster.core.speed import compare
from cudamaster.core.values import (
    Candidate,
    CaseVerdict,
    Findings,
    Hardware,
    Precision,
    Role,
    Status,
    Timing,
    Verdict,
    content_hash,
)
from cudamaster.models.protocol import Model, Reply, Request, Usage
from cudamaster.runs.record import Settings
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result

COMMAND = "nvcc -O3 -std=c++17 -c candidate.cu -o candidate.o"
HARDWARE = Hardware("Stand-in device", {"Cores": "2"}, emulated=True)


@dataclass(frozen=True)
class FakeCard:
    """A task card with just what prompts need."""

    name: str = "double_it"
    title: str = "Double it"
    hash: str = "0123456789abcdef"

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        return self.name + ("_optimized" if optimized else "")

    def declaration(self, precision: Precision, *, optimized: bool = True) -> str:
        return f'extern "C" void {self.wrapper(precision, optimized=optimized)}(float* out, int N)'

    def describe(self, precision: Precision) -> str:
        return f"DESCRIPTION of {self.name} in {precision.value}"


ESCAPES = "<escapes>"


def kernel(status: str = "correct", score: float | None = None, tag: str = "") -> str:
    """Code whose verdict the scripted workbench reads from its first line."""
    return (
        f"// {status} {score if score is not None else '-'} {tag}\nvoid double_it_optimized(float* out, int N) {{}}\n"
    )


SPEED = compare((2.0, 4.0), (1.0, 2.0))


class ScriptedWorkbench:
    """Judges by the first line of the code, and counts how often it was asked about each candidate."""

    def __init__(self, precision: Precision = Precision.FP32, delay: Callable[[], None] = lambda: None) -> None:
        self.card = FakeCard()
        self.precision = precision
        self.hardware = HARDWARE
        self.baseline = Candidate(self.card.name, precision, kernel(score=1.01, tag="baseline"), COMMAND)
        self.evaluated: list[str] = []
        self.profiled: list[str] = []
        self._delay = delay

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        self.evaluated.append(candidate.id)
        self._delay()
        _, status, score, tag = candidate.code.split("\n", 1)[0].split(" ", 3)
        tag = tag.replace(ESCAPES, "\x1b[2J\u202e")  # code cannot hold them, what a program prints can
        timing = Timing((2.0, 4.0), (1.0, 2.0))
        return Verdict(
            candidate=candidate.id,
            device="stand-in",
            emulated=True,
            status=Status(status),
            detail=f"DETAIL {tag}" if status != "correct" else "all cases pass",
            log=f"LOG of {tag}" if status != "correct" else "",
            score=None if score == "-" else float(score),
            cases=(CaseVerdict("N=8", True, 8.0, Status(status), timing=timing, speed=SPEED),),
        )

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        self.profiled.append(candidate.id)
        return Findings(candidate.id, f"no profiler here; NOTE {len(self.profiled)}")


@dataclass
class ScriptedModel:
    """Answers in order; each answer names the role that must be asking."""

    script: Iterable[tuple[Role, str]]
    name: str = "scripted"
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = iter(list(self.script))

    def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        role, text = next(self._left)
        assert request.role is role, f"{request.role} asked where {role} was expected"
        return Reply(text, self.name, Usage(10, 5, 0.25, 0.1))

    @property
    def exhausted(self) -> bool:
        return next(self._left, None) is None

    def for_all(self) -> dict[Role, ScriptedModel]:
        return dict.fromkeys(Role, self)

    def prompts(self, role: Role) -> list[str]:
        return [request.messages[-1].content for request in self.requests if request.role is role]


def search(
    workbench: Any,
    models: Mapping[Role, Model],
    strategy: str,
    rounds: int,
    debug_tries: int = 0,
    observer: Observer | None = None,
    **more: Any,
) -> Result:
    """A search without a run folder, in which no score is too good; `more` are further settings."""
    asked = dict.fromkeys(registry.find(strategy).roles, "scripted")
    rule = {"jump_factor": 0, "jump_above": 0}
    settings = Settings(strategy, rounds, debug_tries, "stand-in", asked, **rule, **more)
    return registry.run(registry.begin(workbench, models, settings, observer or Observer()), settings)


def plan(idea: str) -> tuple[Role, str]:
    return Role.PLANNER, json.dumps({"idea": idea, "plan": f"PLAN for {idea}"})


def code(text: str) -> tuple[Role, str]:
    return Role.CODER, f"Here it is.\n```cuda\n{text}```\n"


def command(text: str = COMMAND) -> tuple[Role, str]:
    return Role.COMPILER, text


def fix(text: str) -> tuple[Role, str]:
    return Role.DEBUG, json.dumps({"diagnosis": f"CAUSE {text}", "fix": f"FIX {text}"})


def dot_product(statement: str) -> str:
    """A dot product whose loop body is `statement`; real CUDA, if slow."""
    return f"""#include <cuda_runtime.h>

__global__ void dot_product_kernel_optimized(float* out, const float* X, const float* Y, int N) {{
    double total = 0.0;
    for (int i = 0; i < N; ++i) {{
        {statement}
    }}
    *out = total;
}}

extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {{
    dot_product_kernel_optimized<<<1, 1>>>(out, X, Y, N);
    cudaDeviceSynchronize();
}}
"""


# ---- a chat server


Answer = Callable[[Role, list[dict[str, str]]], tuple[int, str]]
_OPENINGS = {
    "You plan": Role.PLANNER,
    "You write CUDA": Role.CODER,
    "You choose the compile": Role.COMPILER,
    "You find the cause": Role.DEBUG,
    "You judge CUDA kernels": Role.JUDGE,
    "You review CUDA kernels": Role.REVIEWER,
}


def messages_hash(messages: list[dict[str, str]]) -> str:
    return content_hash(*(part for message in messages for part in (message["role"], message["content"])))


class ChatServer:
    """OpenAI's chat-completions protocol on 127.0.0.1; `answer` gives an HTTP status and the text."""

    def __init__(self, answer: Answer, usage: bool = True) -> None:
        self.asked: list[tuple[Role, list[dict[str, str]]]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                messages = body["messages"]
                role = next(r for start, r in _OPENINGS.items() if messages[0]["content"].startswith(start))
                outer.asked.append((role, messages))
                outer.headers.append(dict(self.headers))
                status, text = answer(role, messages)
                reply = (
                    {
                        "id": "1",
                        "object": "chat.completion",
                        "created": 1,
                        "model": body["model"],
                        "choices": [
                            {
                                "index": 0,
                                "message": {"role": "assistant", "content": text},
                                "finish_reason": "stop",
                            }
                        ],
                        **(
                            {"usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}
                            if usage
                            else {}
                        ),
                    }
                    if status == 200
                    else {"error": {"message": text, "type": "error", "code": str(status)}}
                )
                raw = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the asking process was killed

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class BadServer:
    """Reads each request, counts it, and leaves the rest to `respond`."""

    def __init__(self) -> None:
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.respond(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class HangingUpServer(BadServer):
    """Closes each connection without a word."""

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True


class DrippingServer(BadServer):
    """Answers every request with one byte per 0.05 s, without end: of the body, or of the headers with `headers`."""

    def __init__(self, headers: bool = False) -> None:
        super().__init__()
        self.left = threading.Event()
        self._headers = headers

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        handler.wfile.write(begun + (b"X-Slow: " if self._headers else b"Content-Length: 1000000\r\n\r\n{"))
        try:
            while True:
                handler.wfile.write(b" ")
                time.sleep(0.05)
        except OSError:
            self.left.set()  # whoever asked has closed the connection


class FloodingServer(BadServer):
    """Answers every request with a reply that has no end, as fast as it is read; with `packed` in gzip's form."""

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self.left = threading.Event()
        self._packed = packed

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        packer = zlib.compressobj(wbits=31)
        begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        handler.wfile.write(begun + (b"Content-Encoding: gzip\r\n\r\n" if self._packed else b"\r\n"))
        try:
            while True:
                part = b" " * (1 << 20)
                handler.wfile.write(packer.compress(part) if self._packed else part)
        except OSError:
            self.left.set()  # whoever asked has closed the connection


class RawServer(BadServer):
    """Answers every request with the same status and bytes."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self._status = status
        self._body = body

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(self._status)
        handler.send_header("Content-Length", str(len(self._body)))
        handler.end_headers()
        handler.wfile.write(self._body)


class PlainHttpModel:
    """The chat protocol without LiteLLM, whose import would cost seconds in every killed process."""

    name = "plain-http"

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, request: Request) -> Reply:
        body = {"model": "m", "messages": [{"role": m.role, "content": m.content} for m in request.messages]}
        raw = urllib.request.Request(
            f"{self._url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(raw, timeout=20) as response:
            text = json.load(response)["choices"][0]["message"]["content"]
        return Reply(text, self.name, Usage(100, 20, None, 0.0))
