"""`cudamaster doctor`: what was found on this machine, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy, table
from cudamaster.core import keys

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")

_TOOLS = ("C++ compiler", "binutils", "cache")  # to build anything
_FIRST_BUILD_BYTES = 150 * 10**6
_NEEDED = (*_TOOLS, "CPU device")  # to execute kernels where there is no GPU


@dataclass(frozen=True)
class Check:
    """One thing that was looked for. `needed_for` says what needs it; `fix` how to get it if it is missing."""

    what: str
    found: bool
    detail: str
    needed_for: str
    fix: str = ""


@click.command()
@click.option("--self-test", is_flag=True, help="Run the CPU device's self-test again, even if it has passed.")
@options.as_json
def doctor(self_test: bool, as_json: bool) -> None:
    """Show what CUDAMaster finds on this machine, what is missing, and how to get it.

    The CPU device tests itself on kernels with known results before it judges its first candidate, and records that it
    passed; this command shows the record. Exits with 4 if kernels can run neither on a GPU nor on the CPU device.
    """
    findings = examine(self_test=self_test)
    by_name = {finding.what: finding.found for finding in findings}
    tools = all(by_name[name] for name in _TOOLS)
    cpu = all(by_name[name] for name in _NEEDED)
    cuda = tools and by_name["GPU"] and by_name["nvcc"]
    if as_json:
        print_json({"devices": {"cuda": cuda, "cpu": cpu}, "findings": findings})
    else:
        from rich.text import Text

        out = console()
        rows: list[list[str | Text]] = [
            [f.what, Text("found", "green") if f.found else Text("missing", "yellow"), f.detail, f.needed_for]
            for f in findings
        ]
        out.print(table(["what", "", "detail", "needed for"], rows))
        for finding in findings:
            if not finding.found and finding.fix:
                out.print(f"{finding.what}: {finding.fix}")
        device = "cuda: kernels are measured" if cuda else "cpu: kernels are executed, times are modelled"
        out.print(f"Device that `--device auto` takes: {device if cpu or cuda else 'none'}")
        lacking = [name for name in _NEEDED if not by_name[name]]
        mend = f"get what is missing above ({', '.join(lacking)}), then {ourselves('doctor')}"
        again = ourselves("optimize", "spmv_csr", "--precision", "bf16")
        print_to_copy(out, f"Next: {again if cpu or cuda else mend}")
    click.get_current_context().exit(0 if cpu or cuda else 4)


def examine(*, self_test: bool = False) -> list[Check]:
    """Look for everything. Nothing changes but the cache folder, which is made, and the record of a self-test."""
    from cudamaster.core.errors import DeviceError
    from cudamaster.devices import cuobjdump
    from cudamaster.devices.cpu import toolchain
    from cudamaster.devices.cuda import INSTALL_NVCC, find_gpu
    from cudamaster.devices.ncu import find_ncu
    from cudamaster.devices.nvcc import find_nvcc
    from cudamaster.devices.toolkit import EXTRA
    from cudamaster.faults import compute_sanitizer

    try:
        compiler: str | None = toolchain.compiler()
        no_compiler = ""
    except DeviceError as error:
        compiler, no_compiler = None, error.reason
    gpu, nvcc = find_gpu(), find_nvcc()
    tools = [name for name in ("ld", "objcopy") if shutil.which(name) is None]
    ncu, lister, sanitizer = find_ncu(), cuobjdump.find(), compute_sanitizer.find()
    files, configured = _configuration()
    model = os.environ.get("CUDAMASTER_MODEL") or configured.get("model")
    keys = [key for key in _KEYS if os.environ.get(key)]
    cache = _cache()
    findings = [
        Check("Python", True, platform.python_version(), "everything"),
        Check("C++ compiler", compiler is not None, _version(compiler) if compiler else no_compiler, "both devices",
                "apt-get install g++, or set CXX to a C++17 compiler."),
        Check("binutils", not tools, "ld, objcopy" if not tools else f"no {', '.join(tools)}", "both devices",
                "apt-get install binutils."),
        _cpu_device(compiler is not None and not tools, cache, self_test),
        Check("GPU", gpu is not None, f"{gpu.name}, driver {gpu.driver}" if gpu else "", "measuring",
                "nvidia-smi lists none. Without a GPU, kernels run on the CPU device and times are modelled."),
        Check("nvcc", nvcc is not None, f"{nvcc}, {_version(str(nvcc))}" if nvcc else "", "measuring",
                f"{INSTALL_NVCC}."),
        Check("ncu", ncu is not None, str(ncu or ""), "hardware profiles",
                "Install Nsight Compute; without it agents see only what can be told without hardware counters."),
        Check("cuobjdump", lister is not None, str(lister or ""), "instruction mix, where there are no counters",
                f"It comes with the CUDA toolkit, or with `{EXTRA}`."),
        Check("compute-sanitizer", sanitizer is not None, str(sanitizer or ""), "checks of every new best kernel",
                f"It comes with the CUDA toolkit, or with `{EXTRA}`."),
        Check("model", bool(model), model or "the playbook is used", "new ideas",
                "Set CUDAMASTER_MODEL or give --model; any LiteLLM name will do, e.g. openai/o4-mini."),
        Check("API key", bool(keys), ", ".join(keys), "hosted models",
                "Export the key of your provider, e.g. OPENAI_API_KEY."),
        cache,
        files,
    ]  # fmt: skip
    return [replace(finding, fix="") if finding.found else finding for finding in findings]


def _configuration() -> tuple[Check, dict[str, Any]]:
    """Which configuration files are in effect, after all of them were read, and what they say about `optimize`."""
    from cudamaster.cli import commands, configured
    from cudamaster.core import configuration
    from cudamaster.core.errors import CudaMasterError

    def said(found: bool, detail: str, fix: str = "") -> Check:
        return Check("configuration", found, detail, "options that need not be typed", fix)

    try:
        there = configured.check(*commands())
        of_optimize = configured.defaults("optimize", *commands())
    except CudaMasterError as error:
        return said(False, error.reason, error.fix), {}
    names = f"no file; {configuration.PROJECT_FILE} in a project, {configuration.user_file()} for all"
    return said(True, ", before ".join(map(str, there)) or names), of_optimize


def _cache() -> Check:
    """Whether what is built can be kept."""
    from cudamaster.core import resources
    from cudamaster.core.errors import CudaMasterError
    from cudamaster.devices.cpu import selftest

    try:
        cache = resources.cache()
        # Once that is built, little more is needed.
        if (free := shutil.disk_usage(cache).free) >= _FIRST_BUILD_BYTES or selftest.remembered() is not None:
            return Check("cache", True, str(cache), "both devices")
        return Check("cache", False, f"{cache} is on a disk with {free / 1e6:.1f} MB left, and a first build takes "
                       f"{_FIRST_BUILD_BYTES / 1e6:.0f} MB", "both devices",
                       f"Make room, or set {resources.CACHE} to a folder on another disk.")  # fmt: skip
    except CudaMasterError as error:  # or a configuration file that cannot be used
        return Check("cache", False, error.reason, "both devices", error.fix)


def _cpu_device(has_tools: bool, cache: Check, self_test: bool) -> Check:
    """Whether the CPU device's self-test passed here. If it has not run yet, nothing is missing."""
    from cudamaster.core.errors import DeviceError
    from cudamaster.devices.cpu import selftest
    from cudamaster.devices.cpu.device import CpuDevice

    def said(found: bool, detail: str, fix: str = "") -> Check:
        return Check("CPU device", found, detail, "runs without a GPU", fix)

    if not has_tools:
        return said(False, "needs a C++ compiler and binutils")
    if not cache.found:
        return said(False, f"self-test not run: {cache.detail}", cache.fix)
    try:
        tested = selftest.run(CpuDevice()) if self_test else selftest.remembered()
    except DeviceError as error:
        return said(False, error.reason, error.fix)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return said(False, f"self-test not run: {error.strerror or error}{where}",
                    f"It writes to the cache, {cache.detail}, and to {tempfile.gettempdir()}. "
                    "Make room or give access there.")  # fmt: skip
    if tested is None:
        return said(True, "self-test not run yet: it runs before the first kernel, or with --self-test")
    if tested.failure is not None:
        return said(False, f"self-test failed: {tested.failure}", selftest.FIX)
    when = datetime.fromtimestamp(tested.when).strftime("%Y-%m-%d %H:%M")
    return said(True, f"self-test passed on {when}, {tested.seconds:.1f} s, for {tested.instruction_set}")


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False, env=keys.for_tools()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    lines = done.stdout.strip().splitlines()
    release = next((line for line in lines if "release" in line), lines[0] if lines else "no version")
    return release.strip()
