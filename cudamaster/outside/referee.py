"""The referee of a search: takes kernels from an agent's program over HTTP on the loopback address, for the desk.

It answers nobody without the token, which is in the environment of that program alone. What it takes is text: a kernel
and a compile command, of the search's own task.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cudamaster.agents.submitter import Submission
from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import Verdict
from cudamaster.guards.flags import LONGEST_COMMAND
from cudamaster.guards.text import SIZE_LIMIT
from cudamaster.outside.client import About, Submitted
from cudamaster.outside.desk import Desk

_LARGEST_BODY = 8 * SIZE_LIMIT  # JSON may take six characters for one
_LOOKED_EVERY_S = 0.5


class Referee:
    """Serves while its block lasts. `address` is what client.REFEREE holds for the program."""

    def __init__(self, about: About, desk: Desk) -> None:
        token = secrets.token_urlsafe(24)
        self._server = _Server(about, desk, token)
        self.address = f"http://{token}@127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Serve, in threads of its own."""
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="referee", daemon=True).start()

    def stop(self) -> None:
        """Serve no more. Whoever still waits loses the connection."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, about: About, desk: Desk, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.about, self.desk, self.token = about, desk, token

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing where a client hangs up in the middle: that must not fill our terminal."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30  # to send a request

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the search shows what was submitted."""

    def do_GET(self) -> None:
        """Say what the search judges."""
        if self._may():
            self._answer({"result": to_json(self.server.about)})

    def do_POST(self) -> None:
        """Judge one kernel."""
        if not self._may():
            return
        try:
            future = self.server.desk.submit(self._submission())
            verdict = self._verdict(future)
        except CudaMasterError as error:
            kind = type(error).__name__
            self._answer({"error": {"kind": kind, "reason": error.reason, "fix": error.fix}}, 409)
            return
        if verdict is not None:
            self._answer({"result": to_json(verdict)})

    def _may(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self.server.token.encode()):
            return True
        fix = "Submit from the program that the search started, with its environment."
        self._answer({"error": {"kind": "UsageError", "reason": "This is not the search's agent.", "fix": fix}}, 401)
        return False

    def _submission(self) -> Submission:
        """What was sent. Raises UsageError for what this search does not judge."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > _LARGEST_BODY:
            raise UsageError("A kernel of this length is not taken.", f"Its limit is {SIZE_LIMIT // 1024} KiB.")
        try:
            sent = from_json(Submitted, json.loads(self.rfile.read(int(length))))
            sent.code.encode()
            sent.command.encode()
        except (ValueError, RecursionError, RecordError) as error:  # also half a surrogate pair
            raise UsageError("What was sent is no kernel.", "Use `cudamaster evaluate`.") from error
        about = self.server.about
        if (sent.task, sent.precision) != (about.task, about.precision):
            raise UsageError(
                f"This search is about {about.task} in {about.precision}, not {sent.task} in {sent.precision}.",
                "Submit a kernel of that.",
            )
        if not sent.code.strip() or len(sent.code) > SIZE_LIMIT or len(sent.command) > LONGEST_COMMAND:
            raise UsageError(
                "The kernel is empty, or it or its command is too long.",
                f"A kernel has at most {SIZE_LIMIT // 1024} KiB, a command {LONGEST_COMMAND} characters.",
            )
        return Submission(sent.code, sent.command)

    def _verdict(self, future: Future[Verdict]) -> Verdict | None:
        """The verdict once it is known; None if the client left before the search took the kernel."""
        while True:
            try:
                return future.result(_LOOKED_EVERY_S)
            except NotYet:
                if self._has_left() and future.cancel():
                    return None

    def _has_left(self) -> bool:
        """Whether the client closed the connection: then there is something to read, and that is nothing."""
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _answer(self, what: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
