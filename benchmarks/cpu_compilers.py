"""Tries the CPU device's self-test with other compilers, instruction sets and levels of optimisation, and on aarch64.

    python benchmarks/cpu_compilers.py                    all compilers that are installed, each in every way
    python benchmarks/cpu_compilers.py g++-11 --brief     one, in the two ways that are furthest from each other

For the device, each way is a compiler of its own: a script that adds flags to the real one. aarch64 is tried with a
cross compiler (g++-aarch64-linux-gnu) under qemu-user. A line for each way; exits with 1 where one fails. If
this processor cannot execute a way, only the change of stacks is examined.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, get_args

from cudamaster.core import keys
from cudamaster.core.errors import DeviceError
from cudamaster.devices.cpu import selftest, toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran

CROSS = "aarch64-linux-gnu-g++"
KNOWN = [*(f"g++-{n}" for n in range(11, 17)), *(f"clang++-{n}" for n in range(14, 23)), CROSS]
LEVELS = ("-O0", "-O1", "-O2", "-O3")
WIDE = ("-march=x86-64-v4", "-march=native")  # beyond what the device asks for
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}  # of x86-64-v4
_SWITCH = "cudamaster_cpu_switch_stack"


@dataclass(frozen=True)
class Way:
    """What is added to the device's own flags, and the builds that are tried with it."""

    flags: tuple[str, ...]
    builds: tuple[selftest.Build, ...]

    def __str__(self) -> str:
        return f"{' '.join(self.flags) or 'as it is'}, {len(self.builds)} build{'s' if len(self.builds) > 1 else ''}"


class UnderQemu(CpuDevice):
    """The CPU device of another kind of processor."""

    def execute(
        self, command: Sequence[str], limit_s: float, *, reversed_threads: bool = False, notes: BinaryIO | None = None
    ) -> Ran:
        """As in the device, under an emulator."""
        words = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", *command]
        return super().execute(words, limit_s, reversed_threads=reversed_threads, notes=notes)


def main() -> None:
    """Try what is asked for, in a process for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compilers", nargs="*", help="names of compilers; by default all known ones that are installed")
    parser.add_argument("--brief", action="store_true", help="two ways of each compiler, in the plain build")
    parser.add_argument("--one", metavar="FLAGS", help=argparse.SUPPRESS)
    parser.add_argument("--builds", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        sys.exit(try_one(arguments.compilers[0], arguments.one.split(), get_args(selftest.Build)[: arguments.builds]))
    names = arguments.compilers or [name for name in KNOWN if shutil.which(name)]
    if missing := [name for name in names if not shutil.which(name)]:
        sys.exit(f"error: {', '.join(missing)} not installed; apt-get install, or leave it out")
    failed = 0
    for name in names:
        for way in ways(name, brief=arguments.brief):
            words = [name, f"--one={' '.join(way.flags)}", f"--builds={len(way.builds)}"]
            done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
            said = done.stdout.strip() or done.stderr.strip()[-300:]
            print(f"{name}, {way}: {said}", flush=True)
            failed += done.returncode != 0
    sys.exit(failed != 0)


def ways(name: str, *, brief: bool) -> Iterator[Way]:
    """How a compiler is tried: all builds as the device has them and with all that the processor can do, and the plain
    one with less and with more than the device asks for, at each level."""
    every, plain = get_args(selftest.Build), get_args(selftest.Build)[:1]
    wide = [()] if name == CROSS else [(chosen,) for chosen in WIDE]
    if brief:
        yield from (Way((*wide[-1], level), plain) for level in ("-O0", "-O3"))
        return
    yield Way((), every)
    if name != CROSS:
        yield Way(wide[-1], every)
        yield Way(("-march=x86-64-v2",), plain)
    yield from (Way((*chosen, level), plain) for chosen in wide for level in LEVELS)


def try_one(name: str, flags: Sequence[str], builds: Sequence[selftest.Build]) -> int:
    """Try the builds with those flags, in a cache of its own, and print one line."""
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder) / "c++"
        wrapper.write_text(script(name, flags))
        wrapper.chmod(0o755)
        if name == CROSS:  # binutils of the same kind go before this processor's
            (Path(folder) / "objcopy").symlink_to(shutil.which("aarch64-linux-gnu-objcopy") or "/missing")
            os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        os.environ |= {"CXX": str(wrapper), "CUDAMASTER_CACHE": str(Path(folder) / "cache")}
        try:
            switch = instructions_of_switch(toolchain.runtime_object(debug=False), name)
            if "-march=x86-64-v4" in flags and not avx512():
                print(f"not run, this processor has no AVX-512; the change of stacks: {switch} instructions")
                return 0
            device = UnderQemu() if name == CROSS else CpuDevice()
            found = [selftest.failure_of(device, Path(folder), build) for build in builds]
        except DeviceError as error:
            print(error.reason[:400])
            return 1
    wrong = [failure for failure in found if failure is not None]
    print("; ".join(wrong) or f"right; the change of stacks: {switch} instructions")
    return 1 if wrong else 0


def script(name: str, flags: Sequence[str]) -> str:
    """A compiler that adds flags to its command line; one for aarch64 replaces the flags for this processor."""
    added = shlex.join(flags)
    if name != CROSS:
        return f'#!/bin/sh\nexec {name} "$@" {added}\n'
    return f"""#!/bin/bash
words=()
for word in "$@"; do
    case $word in
    -march=x86-64*) words+=(-march=armv8-a) ;;
    -fcf-protection=none) words+=(-mbranch-protection=none) ;;
    *) words+=("$word") ;;
    esac
done
exec {name} "${{words[@]}}" {added}
"""


def instructions_of_switch(built: Path, name: str) -> int:
    """How many instructions the change of stacks has. DeviceError where it is no function of its own in the executor,
    or something else writes the stack pointer from memory or a foreign register."""
    objdump = "aarch64-linux-gnu-objdump" if name == CROSS else "objdump"
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(built)],
        capture_output=True,
        text=True,
        check=True,
        env=keys.for_tools(),
    ).stdout
    functions = {
        text.split(">", 1)[0]: text.splitlines()[1:] for text in re.split(r"^[0-9a-f]+ <", listing, flags=re.M)
    }
    own = [line for line in functions.get(_SWITCH, []) if re.match(r"\s*[0-9a-f]+:\t", line)]
    other = [
        function
        for function, lines in functions.items()
        if function != _SWITCH and any(re.search(r"mov\s+(?:%rsi,%rsp|sp, x1$)", line) for line in lines)
    ]
    if not own or other:
        raise DeviceError(f"The change of stacks is not in one function: {other or 'none'}.", "See runtime/switch.cpp.")
    return len([line for line in own if "nop" not in line])


def avx512() -> bool:
    """Whether this processor executes x86-64-v4."""
    return set(Path("/proc/cpuinfo").read_text().split()) >= _AVX512


if __name__ == "__main__":
    main()
