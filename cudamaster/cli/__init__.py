"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import keyword
import os
import shutil
import signal
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from cudamaster.cli import completing, options, version
from cudamaster.cli.output import print_error, report_error, show_builds
from cudamaster.core.errors import CudaMasterError, DeviceError, nearest

_EPILOG = """\b
Exit codes:
  0  done                            4  a device, compiler, GPU or disk is missing or failed
  1  the kernel or a baseline fails  5  a model cannot be reached or used
  2  wrong usage, unknown task, or   6  a run folder or a bundle is damaged, or a run belongs to another
     a place that cannot be written  7  a budget was spent before the baseline was measured
  3  a task card cannot be used      8  in training, a dishonest kernel earned a reward
  130  interrupted, or ended by SIGTERM or SIGHUP; 141  the program reading the output exited
`cudamaster compare`, `reproduce` and `report --compare` have codes of their own, see their --help.
With --json, errors are also printed on stdout as {"error": {"reason", "fix", "exit_code"}}.
"""
# The module of each command, which has a function of the command's name.
_MODULES = {
    **{
        name: name
        for name in ("optimize", "suite", "show", "report", "evaluate", "compare", "tasks", "doctor", "check")
    },
    **{name: name for name in ("vendor", "audit", "limits", "sanitize", "profile", "prompt", "calibrate", "metrics")},
    "new": "new",
    "export": "export",
    "hgemm": "hgemm",
    "mcp": "mcp",
    "train": "train",
    "import": "importing",
    "completion": "completion",
    "bundle": "bundle",
    "reproduce": "reproduce",
    **dict.fromkeys(("baselines", "harness"), "bench"),
}
_WITHOUT_FILES = ("doctor", "completion")
_LITTLE_BYTES = 1 << 20  # a disk with less than this is called full


class _Group(options.Group):
    """Prints our own errors as one line with the fix, and exits with their code.

    A command's module is imported when the command is asked for: all of them take a quarter of the time that Python
    needs before it looks at a candidate.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in _MODULES and cmd_name not in self.commands:
            module = importlib.import_module(f"cudamaster.cli.{_MODULES[cmd_name]}")
            command = getattr(module, f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name)
            self.add_command(completing.attach(command))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named, whose defaults are those of configuration files."""
        if args and not args[0].startswith("-") and args[0] not in _MODULES and not ctx.resilient_parsing:
            fix = nearest(args[0], _MODULES, "`cudamaster --help` lists them.")
            ctx.fail(f"No such command '{args[0]}'. {fix}")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            from cudamaster.cli import configured

            # Help is shown, and doctor says what is wrong, whatever is in the files.
            anyway = name in _WITHOUT_FILES or {"-h", "--help"} & set(rest)
            read = configured.or_nothing if anyway else configured.defaults
            ctx.default_map = {name: read(name, *commands())}
        return name, command, rest

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except BrokenPipeError:  # of a usage error
            _leave_unread()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["cudamaster.json"] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:  # of --help
            _leave_unread()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except BrokenPipeError:  # of a result, an error or a word on an interruption
            _leave_unread()

    def _invoke(self, ctx: click.Context) -> Any:
        as_json = bool(ctx.meta.get("cudamaster.json"))
        if sys.stdout is None:  # closed by the caller
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a letter shows a question mark: an encoding error would lose the verdict.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        show_builds()
        try:
            with _ended_as_interrupted():
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.exceptions.Exit:
            raise
        except CudaMasterError as error:
            report_error(error, as_json=as_json)
            ctx.exit(error.exit_code)
        except click.UsageError as error:
            if as_json:
                where = error.ctx.command_path if error.ctx else "cudamaster"
                print_error(error.format_message(), f"See `{where} --help`.", error.exit_code)
            raise
        except KeyboardInterrupt:
            _leave_interrupted(as_json=as_json)
        except RuntimeError as error:
            # Python 3.11 wraps an exception that is raised while an imported module defines a class.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            _leave_interrupted(as_json=as_json)
        except BrokenPipeError:
            raise
        except OSError as error:
            # A full disk or a folder without write permission, wherever it shows first.
            _let_go_of_terminal()
            _mute()
            where = f" ({error.filename})" if error.filename else _full_disks(error)
            report_error(DeviceError(f"{error.strerror or error}{where}.", _fix_of(error)))
            ctx.exit(DeviceError.exit_code)


def _fix_of(error: OSError) -> str:
    """What to do about a file that cannot be used."""
    from cudamaster.core import resources

    cache = resources.cache_place()
    if error.filename and Path(os.fsdecode(error.filename)).is_relative_to(cache):
        return f"Make room or give access, or delete the cache, {cache}: everything in it can be built again."
    return "Make room or give access, and try again."


@contextlib.contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM, and SIGHUP when a terminal closes, end a command as Ctrl-C does, with the line to resume.

    A signal that our parent ignores stays ignored, as under `nohup`.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        _let_go_of_terminal()
        raise KeyboardInterrupt

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_go_of_terminal() -> None:
    """Discard further output if the terminal is gone: an error from writing would hide how we ended."""
    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _full_disks(error: OSError) -> str:
    """The places we write to that are full, for the message: a failed write does not say where."""
    if error.errno != errno.ENOSPC:
        return ""
    from cudamaster.core import resources

    places = {
        "the cache": resources.cache_place(),
        "temporary files": Path(tempfile.gettempdir()),
        "this folder": Path.cwd(),
    }
    full = []
    for name, place in places.items():
        with contextlib.suppress(OSError):
            if shutil.disk_usage(place).free < _LITTLE_BYTES:
                full.append(f"{name}, {place}")
    return f" ({'; '.join(full)})" if full else ""


def _leave(code: int) -> NoReturn:
    """End at once. The interpreter would first wait for other threads, and they wait for compilers and judges."""
    from cudamaster.devices import process

    process.end_all()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # its reader may be gone, or there never was one
            stream.flush()
    os._exit(code)


def _leave_interrupted(*, as_json: bool) -> NoReturn:
    """End with the code of a program ended by Ctrl-C."""
    if as_json:
        print_error("interrupted", "A run goes on with --resume.", 130)
    click.echo("interrupted", err=True)
    _leave(130)


def _leave_unread() -> NoReturn:
    """End with the code of a program ended by SIGPIPE: 0 and 1 speak of the kernel, and click would take 1."""
    _leave(141)


def _mute() -> None:
    """Discard what stdout still holds, so that it does not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=version.show,
              help="Show the version with its commit, and those of Python, nvcc and the C++ compiler.")  # fmt: skip
def main() -> None:
    """Make CUDA kernels faster, and prove that they are.

    MSKernelBench is a benchmark of CUDA tasks in FP32 and BF16; CUDAMaster is the multi-agent optimizer that
    rewrites their kernels, proves them correct and measures them.
    """


def commands() -> tuple[list[str], Callable[[str], click.Command | None]]:
    """The names of all commands, and what loads one."""
    context = click.Context(main)
    return list(_MODULES), lambda name: main.get_command(context, name)
