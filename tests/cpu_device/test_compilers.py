"""The change of stacks with every compiler that is installed, with all that this processor can do, and on aarch64.

`benchmarks/cpu_compilers.py` without arguments tries them in more ways, all builds among them (docs/cpu_device.md).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudamaster.core.errors import DeviceError
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cpu_compilers.py"
CROSS = "aarch64-linux-gnu-g++"
COMPILERS = [*(f"g++-{n}" for n in range(11, 15)), *(f"clang++-{n}" for n in range(14, 20)), CROSS]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILERS)
def test_known_results_with_each_compiler(name):
    """Without optimisation and with all of it, for all of this processor's instructions: the known results."""
    missing = [tool for tool in (name, *(["qemu-aarch64"] if name == CROSS else [])) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    done = subprocess.run([sys.executable, str(SCRIPT), name, "--brief"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(": right; the change of stacks: ", done.stdout)) == 2


def test_a_change_of_stacks_is_one_call(tmp_path):
    """The executor has one function for it, which no other program can name, and is not marked as fit for shadow
    stacks, which that function cannot follow."""
    built = toolchain.runtime_object(debug=False)
    symbols = subprocess.run(["readelf", "-sW", str(built)], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in symbols.splitlines() if line.endswith(" cudamaster_cpu_switch_stack")]
    assert "HIDDEN" in line
    compiled = CpuDevice().compile("int main() { return 0; }\n", [], "nothing", tmp_path)
    linked = CpuDevice().link([compiled.object], tmp_path / "nothing")
    notes = subprocess.run(["readelf", "-nW", str(linked.object)], capture_output=True, text=True, check=True).stdout
    assert "SHSTK" not in notes
    assert "GCS" not in notes


@pytest.mark.parametrize(
    ("machine", "features", "chosen"),
    [
        ("x86_64", "", "x86-64"),
        ("x86_64", "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3", "x86-64-v2"),
        ("x86_64", "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c abm movbe xsave", "x86-64-v2"),
        (
            "x86_64",
            "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave avx512f",
            "x86-64-v3",
        ),
        ("aarch64", "fp asimd sve sve2", "armv8-a"),
    ],
)
def test_named_instruction_sets(machine, features, chosen):
    """The best named set that a processor has all of, and never what is beyond it."""
    assert toolchain.best_set(machine, features.split()) == chosen


def test_other_processors_are_refused():
    """There is no change of stacks for them."""
    with pytest.raises(DeviceError, match="riscv64"):
        toolchain.best_set("riscv64", [])


def test_every_command_names_the_set(tmp_path):
    """No build depends on the processor beyond the set, and the cache's keys tell sets apart."""
    source, target = tmp_path / "x.cpp", tmp_path / "x.o"
    commands = [toolchain.compile_command(source, target, [], debug=debug) for debug in (False, True)]
    commands += [toolchain.observed_command(source, target, [], observer) for observer in ("trace", "check")]
    for command in commands:
        (march,) = [word for word in command if word.startswith("-march=")]
        assert march != "-march=native"
        assert not [word for word in command if word.startswith("-m") and word != march]


def test_sets_have_caches_of_their_own(monkeypatch):
    """Two machines that share a cache folder do not mix them up."""
    before = toolchain.fingerprint()
    monkeypatch.setattr(toolchain, "_features", lambda: frozenset({"sse2"}))
    assert toolchain.fingerprint() != before


def test_headers_of_the_system_may_write_attributes_by_their_reserved_names(tmp_path):
    """CUDA's `__noinline__` is a macro here, and libstdc++ 13 has `__attribute__((__noinline__))` in its headers."""
    names = ["__noinline__", "__always_inline__", "__const__", "__pure__", "__aligned__(16)", "__unused__", "__cold__"]
    lines = [f"__attribute__(({name})) int f{n}(int);" for n, name in enumerate(names)]
    text = "\n".join([*lines, "__noinline__ __device__ int g(int x) { return x; }", ""])
    compiled = CpuDevice().compile(text, [], "attributes", tmp_path)
    assert compiled.object is not None, compiled.log
