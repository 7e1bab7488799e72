"""`cudamaster mcp`: the harness as a server for coding agents."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path

import click

from cudamaster.cli import options

TOKEN = "CUDAMASTER_MCP_TOKEN"
_PORT = 8417
_SHORTEST = 16  # characters of a token


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP on this machine (127.0.0.1), not on stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="With --http: the port; 0 takes a free one.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    show_default="the current folder",
    help="Where `file:PATH` finds kernels; nothing outside is read.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    show_default="runs/mcp in the folder",
    help="Where every result is kept. Budgets hold for all servers with the same record.",
)
@options.of_suite
@options.device
@click.option("--max-evaluations", type=click.IntRange(0), help="The most kernels to build and run.")
@click.option("--max-minutes", type=options.Number(0), help="The most minutes that calls may take, all together.")
@click.option("--max-gpu-seconds", type=options.Number(0), help="The most seconds in which the GPU is held.")
def mcp(
    http: bool,
    port: int,
    folder: Path,
    record: Path | None,
    of: str | None,
    device: str,
    max_evaluations: int | None,
    max_minutes: float | None,
    max_gpu_seconds: float | None,
) -> None:
    """Serve tasks, evaluations and profiles to a coding agent, over the Model Context Protocol.

    \b
    Claude Code:  claude mcp add cudamaster -- cudamaster mcp
    Codex CLI:    codex mcp add cudamaster -- cudamaster mcp

    Other agents, HTTP, budgets and what a result looks like: docs/agents.md. The server ends when its client goes away.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.devices import parts
    from cudamaster.serving.catalog import Catalog
    from cudamaster.serving.ledger import Ledger, Limits
    from cudamaster.serving.tools import Tools

    if options.was_given("port") and not http:
        raise UsageError("--port is for --http.", "Add --http, or leave out --port.")
    try:
        from cudamaster.serving import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fix = "Install it: pip install 'cudamaster[mcp]', or '.[mcp]' in a checkout."
        raise UsageError("The package mcp, the protocol's SDK, is not installed.", fix) from error
    place = folder.resolve()
    ledger = Ledger(record or place / "runs" / "mcp", Limits(max_evaluations, max_minutes, max_gpu_seconds))
    tools = Tools(Catalog(of), device, place, ledger)
    parts.report = None  # how far a first build is goes to the client that waits for it
    if not http:
        if sys.stdin.isatty():
            said = "An agent starts this command itself, and speaks to it here (docs/agents.md). Ctrl-C ends it."
            click.echo(said, err=True)
        server.serve_stdio(tools)
        return
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    if len(token) < _SHORTEST:
        raise UsageError(f"{TOKEN} has fewer than {_SHORTEST} characters.", "Take a longer one, or unset it.")
    with _listening(server.HOST, port) as listening:
        said = f"that of ${TOKEN}" if os.environ.get(TOKEN) else token
        click.echo(f"Serving at http://{server.HOST}:{listening.getsockname()[1]}/mcp, token: {said}", err=True)
        server.serve_http(tools, listening, token)


def _listening(host: str, port: int) -> socket.socket:
    """A socket at the port, or at a free one for 0. Raises UsageError for one that another program has."""
    from cudamaster.core.errors import UsageError

    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise UsageError(f"Port {port} cannot be used: {error.strerror}.", "Give another one with --port.") from error
