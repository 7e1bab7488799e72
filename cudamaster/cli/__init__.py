"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

import cudamaster
from cudamaster.cli.bench import baselines, harness
from cudamaster.cli.doctor import doctor
from cudamaster.cli.evaluate import evaluate
from cudamaster.cli.optimize import optimize
from cudamaster.cli.output import report_error
from cudamaster.cli.tasks import tasks
from cudamaster.errors import CudaMasterError

_EPILOG = """\b
Exit codes:
  0  done                            4  a device, compiler or GPU is missing or failed
  1  the kernel or a baseline fails  5  a model cannot be reached or makes no sense
  2  wrong usage, unknown task       6  a run folder is damaged or belongs to another run
  3  a task card cannot be used      130  interrupted
"""


class _Group(click.Group):
    """Prints our own errors as one line with the fix, and exits with their code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CudaMasterError as error:
            report_error(error)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # Whoever read our output has gone; what is left must not raise again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


@click.group(
    cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(cudamaster.__version__, prog_name="cudamaster")
def main() -> None:
    """Make CUDA kernels fast, and know that they are.

    MSKernelBench is a benchmark of CUDA tasks in FP32 and BF16; CUDAMaster is the multi-agent optimizer that
    rewrites their kernels, proves them correct and measures them.
    """


for command in (optimize, evaluate, tasks, doctor, baselines, harness):
    main.add_command(command)
