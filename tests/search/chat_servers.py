# ruff: noqa: D102
"""Servers of chat models on 127.0.0.1: one that answers by the prompt, and those that answer as no model should."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cudamaster.core.values import Role, content_hash
from cudamaster.models.protocol import Message, Request

SECRET = "dummy-key-5f2a9c"  # what the fixture `openai_key` sets
REQUEST = Request(Role.PLANNER, (Message("system", "You plan x"), Message("user", "hello")))
TOLD = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

Answer = Callable[[Role, list[dict[str, str]]], tuple[int, str]]
_OPENINGS = {
    "You plan": Role.PLANNER,
    "You write CUDA": Role.CODER,
    "You choose the compile": Role.COMPILER,
    "You find the cause": Role.DEBUG,
    "You judge CUDA kernels": Role.JUDGE,
    "You review CUDA kernels": Role.REVIEWER,
    "You describe CUDA code": Role.DESCRIBER,
}


def messages_hash(messages: list[dict[str, str]]) -> str:
    return content_hash(*(part for message in messages for part in (message["role"], message["content"])))


def completion(content: str | None, *, model: str = "x", finish: str = "stop", **more: object) -> dict[str, object]:
    """A reply in OpenAI's form."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], **more}


class Server:
    """Reads each request, keeps its body and headers, and leaves the rest to `respond`."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.headers.append(dict(self.headers))
                outer.respond(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def send(
        self, handler: BaseHTTPRequestHandler, status: int, reply: object, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with bytes, or with anything else as JSON."""
        raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the asking process was killed
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(raw)), **(headers or {})}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(raw)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class ChatServer(Server):
    """OpenAI's chat-completions protocol; `answer` gives an HTTP status and the text."""

    def __init__(self, answer: Answer, usage: bool = True) -> None:
        super().__init__()
        self.asked: list[tuple[Role, list[dict[str, str]]]] = []
        self._answer = answer
        self._more = {"usage": TOLD} if usage else {}

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        messages = body["messages"]
        role = next(r for start, r in _OPENINGS.items() if messages[0]["content"].startswith(start))
        self.asked.append((role, messages))
        status, text = self._answer(role, messages)
        error = {"error": {"message": text, "type": "error", "code": str(status)}}
        reply = completion(text, model=body["model"], **self._more) if status == 200 else error
        self.send(handler, status, reply, {"Content-Type": "application/json"})


class UsageServer(Server):
    """Both protocols, OpenAI's and Anthropic's; `answer` gives status, headers and, for 200, usage."""

    def __init__(self, answer: Callable[[], tuple[int, dict[str, str], object]]) -> None:
        super().__init__()
        self._answer = answer

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        status, headers, usage = self._answer()
        if status != 200:
            reply: dict[str, object] = {"error": {"message": "busy"}}
        elif handler.path.endswith("/messages"):
            content = [{"type": "text", "text": "fine"}]
            reply = {"id": "1", "type": "message", "role": "assistant", "model": body["model"], "content": content}
            reply |= {"stop_reason": "end_turn", "usage": usage}
        else:
            reply = completion("fine", model=body["model"], usage=usage)
        self.send(handler, status, reply, headers)


class BadServer(Server):
    """A server whose answers are no replies; `asked` counts the requests."""

    @property
    def asked(self) -> int:
        return len(self.bodies)


class HangingUpServer(BadServer):
    """Closes each connection without a word."""

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.close_connection = True


class RawServer(BadServer):
    """Answers every request with the same status and bytes."""

    def __init__(self, status: int, reply: bytes) -> None:
        super().__init__()
        self._status = status
        self._reply = reply

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.send(handler, self._status, self._reply)


class UnendingServer(BadServer):
    """Answers every request without end; `left` is set when whoever asked has closed the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.left = threading.Event()

    def parts(self) -> Iterator[bytes]:
        raise NotImplementedError

    def respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        try:
            for part in self.parts():
                handler.wfile.write(part)
        except OSError:
            self.left.set()


class DrippingServer(UnendingServer):
    """Sends one byte per 0.05 s: of the body, or of the headers with `of_headers`."""

    def __init__(self, of_headers: bool = False) -> None:
        super().__init__()
        self._of_headers = of_headers

    def parts(self) -> Iterator[bytes]:
        yield b"X-Slow: " if self._of_headers else b"Content-Length: 1000000\r\n\r\n{"
        while True:
            yield b" "
            time.sleep(0.05)


class FloodingServer(UnendingServer):
    """Sends as fast as it is read; with `packed` in gzip's form."""

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self._packed = packed

    def parts(self) -> Iterator[bytes]:
        packer = zlib.compressobj(wbits=31)
        yield b"Content-Encoding: gzip\r\n\r\n" if self._packed else b"\r\n"
        while True:
            part = b" " * (1 << 20)
            yield packer.compress(part) if self._packed else part
