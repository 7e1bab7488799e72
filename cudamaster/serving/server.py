"""The server: tools and resources of the protocol over `tools`, and the two ways to reach them, stdio and HTTP."""

from __future__ import annotations

import hmac
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.mcpserver.tools import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, ResourceLink, TextContent, ToolAnnotations
from pydantic import AnyHttpUrl, ConfigDict, Field

from cudamaster import __version__
from cudamaster.core.errors import CudaMasterError, DeviceError
from cudamaster.library.progress import Progress
from cudamaster.serving.calls import Calls
from cudamaster.serving.tools import Tools, kernel_link, verdict_link

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")  # that a client may call us by; a page elsewhere that resolves to us has another
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 1
_INSTRUCTIONS = """\
A judge for CUDA kernels. A task has a baseline kernel; write one that computes the same and is faster.

1. list_tasks, then read_card of one: what to declare, what counts as right, which sizes are tried, a file to start
   from.
2. evaluate your kernel: it is built, checked against a double-precision reference on fresh inputs and timed beside the
   baseline. P is the speedup. check_only is quicker and times nothing.
3. If it is wrong, mend what `log` shows. If it is right, profile says what bounds it. compare puts two kernels side by
   side, sanitize looks for races and memory faults, best_so_far gives the best kernel back.

A kernel is given as its CUDA text; as `file:PATH`, a .cu file in the folder that the server was started for; as
`kept:ID`, one that was given before, by the `kernel` of its result; as `best`, the best so far; or as `baseline`.
The first evaluation of a task takes up to minutes, since the judge is built. `left` says what the budget still allows.
Times marked `modelled` are a model's of a GPU: no GPU measured them. Every whole result is kept: `whole` is its link.
"""

Task = Annotated[str, Field(description="Name of a task, as list_tasks gives it, such as relu.", max_length=200)]
Kernel = Annotated[
    str,
    Field(
        description="The kernel: its CUDA text (kernels and the one wrapper that read_card gives under `declare`), or "
        "`file:PATH` of a .cu file in the server's folder, `kept:ID`, `best` or `baseline`.",
        max_length=1 << 20,
    ),
]
Precision = Annotated[
    Literal["fp32", "bf16", "fp16"] | None,
    Field(description="Element type. Left out: that of a kept kernel, else fp32, or the one that the task has."),
]
Command = Annotated[
    str | None,
    Field(
        description="Compile command, such as `nvcc -O3 --use_fast_math -c candidate.cu -o candidate.o`. Flags for "
        "code generation are taken, others refused; no shell sees it. Left out: plain -O3.",
        max_length=4000,
    ),
]

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_MEASURES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)


def server(tools: Tools, calls: Calls, *, token: str | None = None) -> MCPServer[Any]:
    """The server of these tools. With a `token`, clients that come over HTTP have to show it."""

    async def told(
        ctx: Context[Any, Any], do: Callable[[Progress], dict[str, Any]], *, quick: bool = False
    ) -> CallToolResult:
        """The result of a call, with progress on the way; an error of ours as an error of the tool."""

        async def tell(seconds: float, line: str) -> None:
            await ctx.report_progress(seconds, message=line)

        try:
            return _result(await calls.run(do, tell, quick=quick))
        except CudaMasterError as error:
            return _error(error)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            return _error(
                DeviceError(f"{error.strerror or error}{where}.", "Make room or give access on that machine.")
            )

    async def list_tasks(
        ctx: Context[Any, Any],
        suite: Annotated[str | None, Field(description="Only this suite, such as MSKernelBench.")] = None,
        category: Annotated[str | None, Field(description="Only this category, such as activation.")] = None,
    ) -> CallToolResult:
        """List the tasks by suite and category, each with a short line on what it computes."""
        return await told(ctx, lambda _: tools.list_tasks(suite, category), quick=True)

    async def read_card(
        ctx: Context[Any, Any],
        task: Task,
        precision: Precision = None,
        baseline: Annotated[bool, Field(description="Whether to add the text of the baseline kernel.")] = True,
    ) -> CallToolResult:
        """Say what a kernel of a task has to do: the formula, the wrapper to declare, its parameters, the rules, how
        far off a result may be, the sizes that are timed, checked and drawn afresh, and a file to start from. Read this
        before you write a kernel."""
        return await told(ctx, lambda _: tools.read_card(task, precision, with_baseline=baseline), quick=True)

    async def evaluate(
        ctx: Context[Any, Any],
        task: Task,
        kernel: Kernel,
        precision: Precision = None,
        command: Command = None,
        check_only: Annotated[
            bool, Field(description="Only check whether it is right, at small sizes: quicker.")
        ] = False,
    ) -> CallToolResult:
        """Build a kernel, check it on fresh inputs, and time it against the baseline. Takes seconds to minutes.

        `status` is correct, wrong, fault, timeout, compile_error, rejected (breaks the rules) or unsupported (by this
        device). `P` is the speedup over the baseline with its `interval`, `least_gain` the sizes that gain least. A
        kernel that is not correct comes with `log`: what is wrong and where. Counts as one evaluation."""
        return await told(
            ctx, partial(tools.evaluate, task=task, kernel=kernel, precision=precision, command=command,
                         check_only=check_only)
        )  # fmt: skip

    async def compare(
        ctx: Context[Any, Any],
        task: Task,
        first: Kernel,
        second: Kernel,
        precision: Precision = None,
        command: Command = None,
    ) -> CallToolResult:
        """Check two kernels of a task, and time the second against the first, in turn and on the same inputs.

        `change` says whether the second is faster, slower, same or unsure, `speedup` by how much. Counts as two
        evaluations."""
        return await told(
            ctx, partial(tools.compare, task=task, first=first, second=second, precision=precision, command=command)
        )

    async def profile(
        ctx: Context[Any, Any],
        task: Task,
        kernel: Kernel,
        precision: Precision = None,
        command: Command = None,
        case: Annotated[
            str, Field(description="Which timed size: heaviest, all, or its number from 1.", max_length=20)
        ] = "heaviest",
    ) -> CallToolResult:
        """Say what bounds a correct kernel and the baseline, how they are launched, and the metrics that matter.

        They are Nsight Compute's on a GPU, and a model's of a GPU elsewhere. Counts as one evaluation."""
        return await told(
            ctx, partial(tools.profile, task=task, kernel=kernel, precision=precision, command=command, case=case)
        )

    async def sanitize(
        ctx: Context[Any, Any],
        task: Task,
        kernel: Kernel,
        precision: Precision = None,
        command: Command = None,
        tool: Annotated[
            Literal["all", "memcheck", "racecheck", "initcheck", "synccheck"], Field(description="Which checker.")
        ] = "all",
    ) -> CallToolResult:
        """Look for faults that a right result can hide: races, accesses out of bounds, reads of unwritten memory.

        Findings come with the lines of the kernel. Counts as one evaluation."""
        return await told(
            ctx, partial(tools.sanitize, task=task, kernel=kernel, precision=precision, command=command, tool=tool)
        )

    async def best_so_far(
        ctx: Context[Any, Any],
        task: Annotated[str | None, Field(description="Name of a task; left out: of all tasks.")] = None,
        precision: Precision = None,
        with_kernel: Annotated[bool, Field(description="Whether to add the text of the task's best kernel.")] = False,
    ) -> CallToolResult:
        """Give the best kernels that were measured, also by earlier servers with the same record, and what is left of
        the budget. Measures nothing."""
        return await told(ctx, lambda _: tools.best_so_far(task, precision, with_kernel=with_kernel), quick=True)

    readers: list[Callable[..., Awaitable[CallToolResult]]] = [list_tasks, read_card, best_so_far]
    measurers: list[Callable[..., Awaitable[CallToolResult]]] = [evaluate, compare, profile, sanitize]
    made = [_tool(function, _READS) for function in readers] + [_tool(function, _MEASURES) for function in measurers]
    # Who issues tokens is never asked: clients have ours.
    auth = None if token is None else AuthSettings(issuer_url=AnyHttpUrl(f"http://{HOST}"), resource_server_url=None)
    served: MCPServer[Any] = MCPServer(
        "cudamaster",
        title="CUDAMaster",
        version=__version__,
        instructions=_INSTRUCTIONS,
        tools=made,
        log_level="WARNING",
        auth=auth,
        token_verifier=_Token(token) if token is not None else None,
    )

    @served.resource(verdict_link("{number}"), mime_type="application/json", description="The whole result of a call.")
    def verdict(number: str) -> str:
        return _there(lambda: tools.ledger.verdict(number))

    @served.resource(kernel_link("{identifier}"), mime_type="text/plain", description="The text of a kernel.")
    def kernel_text(identifier: str) -> str:
        return _there(lambda: tools.ledger.kernel(identifier).code)

    return served


def serve_stdio(tools: Tools) -> None:
    """Serve the client at the other end of standard input and output, until it goes away or a signal comes."""
    calls = Calls()

    def leave(number: int, _frame: object) -> None:
        # A thread waits in a read of standard input, which nothing else would end.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        calls.close()
        os._exit(128 + number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        server(tools, calls).run("stdio")
    finally:
        calls.close()


def serve_http(tools: Tools, listening: socket.socket, token: str) -> None:
    """Serve clients of this machine at a socket of HOST, that show the token, until a signal ends it."""
    calls = Calls()
    hosts = [f"{name}:*" for name in _NAMES]
    allowed = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    app = server(tools, calls, token=token).streamable_http_app(host=HOST, transport_security=allowed)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S)
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    finally:
        calls.close()


class _Token:
    """Takes one token, in the time that takes no hint of it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who shows the token; None for another."""
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return None
        return AccessToken(token=token, client_id="agent", scopes=[])


def _tool(function: Callable[..., Awaitable[CallToolResult]], annotations: ToolAnnotations) -> Tool:
    """A tool of a function's signature and docstring. What is no parameter is refused, since it is a misspelt one."""
    tool = Tool.from_function(function, description=_plain(function.__doc__ or ""), annotations=annotations)
    model = tool.fn_metadata.arg_model
    model.model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    model.model_rebuild(force=True)
    tool.parameters = model.model_json_schema(by_alias=True)
    return tool


def _plain(text: str) -> str:
    """Paragraphs without the line breaks of the source."""
    return "\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _result(said: dict[str, Any]) -> CallToolResult:
    """As structure and as JSON, with a link to the whole where there is one."""
    text = TextContent(type="text", text=json.dumps(said, ensure_ascii=False, separators=(",", ":")))
    if "whole" not in said:
        return CallToolResult(content=[text], structured_content=said)
    link = ResourceLink(type="resource_link", uri=said["whole"], name="the whole result", mime_type="application/json")
    return CallToolResult(content=[text, link], structured_content=said)


def _error(error: CudaMasterError) -> CallToolResult:
    said = " ".join(f"{error.reason} {error.fix}".split()).replace("--precision", "precision")
    return CallToolResult(content=[TextContent(type="text", text=said)], is_error=True)


def _there(read: Callable[[], str]) -> str:
    try:
        return read()
    except CudaMasterError as error:
        raise ResourceNotFoundError(str(error)) from None
