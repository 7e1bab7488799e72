"""The host's C++ compiler, the flags that candidates are built with, and the executor's object built once per both."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from cudamaster.core import caching, keys, resources
from cudamaster.core.errors import DeviceError
from cudamaster.devices import parts
from cudamaster.devices.process import require_room, run_limited
from cudamaster.devices.protocol import SHARED, ObserverKind

_HERE = Path(__file__).parent
_BUILD_LIMIT_S = 300.0
INCLUDE = _HERE / "include"
RUNTIME = _HERE / "runtime"

# No contraction of floating-point operations, so that results do not depend on how a loop was compiled.
_COMMON = ("-ffp-contract=off", "-fno-builtin-printf", "-fno-strict-aliasing", "-pthread")
_RUNTIME_FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-fno-lto")
# The change of stacks cannot follow a shadow stack (runtime/switch.cpp). A program gets one only if all of its objects
# are marked as fit for it, so the executor is not.
_NO_SHADOW_STACK = {"x86_64": "-fcf-protection=none", "aarch64": "-mbranch-protection=none"}
# The instruction sets that code is compiled for, best first, and what a processor has to have for each, as Linux names
# it. One set by its name, and not all that a processor can do: two machines with the same set give the same bits.
_V2 = frozenset({"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}) | _V2
_SETS = {
    "x86_64": (("x86-64-v3", _V3), ("x86-64-v2", _V2), ("x86-64", frozenset[str]())),
    "aarch64": (("armv8-a", frozenset[str]()),),
}
_SANITIZER = ("-fsanitize=address", "-fno-omit-frame-pointer")
# An observed build calls out at each access and each basic block; no runtime of the compiler's is linked, so the
# call-outs are ours. Nothing is vectorised or exchanged for a library's loop: an access of the source stays one.
_OBSERVED = (
    "-DCUDAMASTER_CPU_OBSERVED=1",
    "-U_FORTIFY_SOURCE",
    "-fsanitize=thread",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
)
_OBSERVED_GNU = ("-fno-tree-loop-distribute-patterns", "--param=tsan-distinguish-volatile=1")
_OBSERVED_CLANG = tuple(
    word
    for option in ("disable-loop-idiom-all", "tsan-distinguish-volatile=1", "tsan-instrument-memintrinsics=0")
    for word in ("-mllvm", f"-{option}")
)
# The code that is counted has one instruction set everywhere, near a GPU's: loops unrolled as nvcc does, in order, with
# whole vectors loaded at once, products and sums apart (whoever reads the code decides which pairs are one).
_TRACED = ("-O3", "-fsanitize-coverage=trace-pc", "-fno-stack-protector", "-fcf-protection=none")
_TRACED_GNU = (
    "-fno-tree-sra",
    "-fno-tree-loop-distribution",
    "-fno-loop-interchange",
    "-fno-loop-unroll-and-jam",
    "-fdisable-rtl-loop2_unroll",
    # Paths that meet again are not duplicated: a store after them stays one store.
    "-fno-split-paths",
    "-freorder-blocks-algorithm=simple",
)
_TRACED_SET = "x86-64-v2"
# Macros that choose parts of the harness's texts. The header that all begin with does not look at them.
_OF_HARNESS = ("-DMSKB_JUDGE", "-DMSKB_CALL", "-DMSKB_SEPARATE_CANDIDATE")
_TELLS = re.compile(r"-(?:D|O|f|m(?!llvm)|std=)")
_BY_BUILD = ("__BASE_FILE__", "__DATE__", "__TIME__", "__TIMESTAMP__")
_MOVING = ("memcpy", "memmove", "memset")
_ALLOCATING = (
    *("malloc", "calloc", "realloc", "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"),
    *("_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"),
)
_IN_LIBRARY = ("-fPIC", "-fvisibility=hidden")  # of what goes into a shared library
# Only what is checked has lines of its source, for reports: they change no instruction, but take a tenth of the time.
_CHECKED = ("-O1", "-g1", "-DCUDAMASTER_CPU_CHECKED=1")
# For candidates only. The sanitizer's checks of a function with many accesses are calls: written out, they would take
# half of a large kernel's compilation, and running them takes as long either way.
_MANY_ACCESSES = 50
# For candidates only: a GPU faults at a misaligned access. The executor has the handler, so no runtime is linked.
_ALIGNMENT = ("-fsanitize=alignment", "-fsanitize-recover=alignment")


def compiler() -> str:
    """Path of the C++ compiler: $CXX, else g++, clang++ or c++. DeviceError where there is none."""
    chosen = os.environ.get("CXX")
    for name in [chosen] if chosen else ["g++", "clang++", "c++"]:
        found = shutil.which(name)
        if found is not None:
            return found
    wanted = f"The C++ compiler {chosen} named by CXX" if chosen else "A C++ compiler (g++ or clang++)"
    raise DeviceError(f"{wanted} is not installed.", "Install g++ (apt install g++), or set CXX to a C++17 compiler.")


@cache
def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=True, env=keys.for_tools()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"The C++ compiler {path} does not run: {error}.", "Set CXX to one that does.") from error
    return done.stdout.splitlines()[0] if done.stdout else path


def version() -> str:
    """First line of the compiler's --version."""
    return _version(compiler())


def working_compiler() -> str:
    """Path of the C++ compiler, which was tried. DeviceError where there is none, or it does not run."""
    version()
    return compiler()


def instruction_set() -> str:
    """The named set that everything is compiled for here: the best that the processor has."""
    return best_set(_machine(), _features())


def best_set(machine: str, features: Collection[str]) -> str:
    """The best of the named sets on a processor of that kind with these abilities. DeviceError where there is none."""
    if machine not in _SETS:
        raise DeviceError(f"The CPU device cannot run on a processor of the kind {machine}.", "Use x86-64 or aarch64.")
    return next(name for name, needed in _SETS[machine] if needed <= set(features))


def _common(*, traced: bool = False) -> list[str]:
    """Flags for all code: the instruction set, or for code that is counted the one that all processors have."""
    chosen = instruction_set()
    if traced and chosen != "x86-64" and chosen.startswith("x86-64"):
        chosen = _TRACED_SET
    return [f"-march={chosen}", *_COMMON]


def _sanitizer() -> list[str]:
    """Flags of the memory-checking build. Not every clang defines the macro by which g++ says that it checks."""
    return [*_SANITIZER, *(["-D__SANITIZE_ADDRESS__=1"] if "clang" in version() else [])]


def _calls() -> list[str]:
    """What makes checks of large functions calls, in the compiler's own spelling."""
    option = f"asan-instrumentation-with-call-threshold={_MANY_ACCESSES}"
    return ["-mllvm", f"-{option}"] if "clang" in version() else [f"--param={option}"]


def candidate_flags(flags: Sequence[str]) -> list[str]:
    """The flags of a candidate's nvcc command that count here, -D, -std and -O, in the compiler's own spelling."""
    standard, level = "c++17", "3"
    macros: list[str] = []
    words = iter(flags)
    for word in words:
        if word in {"-D", "--define-macro", "-std", "--std", "-O", "--optimize"}:
            word = {"--define-macro": "-D", "--std": "-std=", "-std": "-std=", "--optimize": "-O"}.get(word, word)
            word += next(words, "")
        elif word in {"-Xptxas", "-Xcompiler", "-Xcicc", "-Xnvlink", "--ptxas-options", "--compiler-options"}:
            next(words, None)
            continue
        word = word.replace("--define-macro=", "-D").replace("--std=", "-std=").replace("--optimize=", "-O")
        if word.startswith("-D"):
            macros.append(word)
        elif word.startswith("-std="):
            standard = word.removeprefix("-std=")
        elif word.startswith("-O") and word[2:] in {"0", "1", "2", "3"}:
            level = word[2:]
    # The headers here need C++17, which is also nvcc's default.
    if standard in {"c++03", "c++11", "c++14"}:
        standard = "c++17"
    return [f"-std={standard}", f"-O{level}", *macros]


def compile_command(source: Path, target: Path, flags: Sequence[str], *, debug: bool) -> list[str]:
    """Command that compiles a rewritten source to an object file."""
    return _command(source, target, _flags(flags, debug=debug))


def observed_command(source: Path, target: Path, flags: Sequence[str], observer: ObserverKind) -> list[str]:
    """Command that compiles a rewritten source to an object file that calls out to an observer."""
    return _command(source, target, _observed_flags(flags, observer))


def _command(source: Path, target: Path, own: Sequence[str]) -> list[str]:
    bench = resources.bench()
    return [
        compiler(),
        *own,
        f"-I{INCLUDE}",
        f"-I{bench / 'include'}",
        f"-I{bench}",
        "-include",
        _prelude(compiler(), tuple(flag for flag in own if flag not in _OF_HARNESS)),
        "-c",
        str(source),
        "-o",
        str(target),
    ]


def _flags(flags: Sequence[str], *, debug: bool) -> list[str]:
    own = [*candidate_flags(flags), "-w"]
    if debug:
        # Lines are all that a report names. Types and variables of a large kernel would take half of its compilation.
        own = [flag for flag in own if not flag.startswith("-O")]
        own += ["-O1", "-g1", *_sanitizer(), *_calls(), *_ALIGNMENT]
    # The object goes into an executable, so thread-local variables are one instruction away.
    place = _IN_LIBRARY if SHARED in flags else ("-ftls-model=local-exec",)
    return [*own, *_common(), *place, "-DMSKB_CPU_DEVICE=1"]


def _observed_flags(flags: Sequence[str], observer: ObserverKind) -> list[str]:
    own = [*candidate_flags(flags), "-w", *_OBSERVED]
    gnu = "clang" not in version()
    own += _OBSERVED_GNU if gnu else _OBSERVED_CLANG
    common = _common()
    own = [flag for flag in own if not flag.startswith("-O")]
    if observer == "trace":
        own += [*_TRACED, *(_TRACED_GNU if gnu else ())]
        common = _common(traced=True)
    else:
        own += [*_CHECKED, *_ALIGNMENT]
    return [*own, *common, "-ftls-model=local-exec", "-DMSKB_CPU_DEVICE=1"]


def flags_of_builds(flags: Sequence[str]) -> list[list[str]]:
    """The flags on which the compiler's own macros depend, for each build of a candidate.

    The instruction set, a sanitizer, and the file and time of a build change them.
    """
    builds = [_flags(flags, debug=debug) for debug in (False, True)]
    builds += [_observed_flags(flags, observer) for observer in ("trace", "check")]
    return [
        [*(word for word in own if _TELLS.match(word)), "-w", *(f'-D{name}="{number}"' for name in _BY_BUILD)]
        for number, own in enumerate(builds)
    ]


def redirect_command(target: Path) -> list[str]:
    """Command that makes a traced object call the observer for what it moves by the library's functions.

    The compiler makes no call-outs in those functions, so a kernel that is one memcpy would cause no traffic. The same
    holds for memory that it takes from the heap, which the observer would not know.
    """
    renames = (f"--redefine-sym={name}=cudamaster_cpu_observe_{name}" for name in (*_MOVING, *_ALLOCATING))
    return ["objcopy", *renames, str(target)]


def _prelude(path: str, flags: tuple[str, ...]) -> str:
    """The header that every source begins with: cuda_runtime.h, where possible compiled with the same flags.

    Reading it takes half of a small kernel's compilation. The compiled one is made at the first call and kept in the
    cache folder; if g++ finds that it does not fit, it takes the text beside it. That text names no folder, because it
    may have been made by another checkout with the same sources, which is gone by now.
    """
    ours = ("-DMSKB_", "-DCUDAMASTER_")
    if "clang" in _version(path) or any(flag.startswith("-D") and not flag.startswith(ours) for flag in flags):
        return "cuda_runtime.h"
    key = hashlib.sha256("\0".join([fingerprint(), *flags]).encode()).hexdigest()[:16]
    header = resources.cache() / "cpu-runtime" / f"prelude-{key}.h"
    target = header.with_suffix(".h.gch")
    if caching.kept(target):
        return str(header)
    header.parent.mkdir(parents=True, exist_ok=True)
    with parts.alone(header.with_suffix(".lock"), "a header"):
        if caching.kept(target):
            return str(header)
        with parts.workshop(target) as building:
            made, text = building / target.name, building / header.name
            text.write_text("#include <cuda_runtime.h>\n", encoding="utf-8")
            text.replace(header)
            command = [path, *flags, f"-I{INCLUDE}", "-x", "c++-header", str(header), "-o", str(made)]
            if run_limited(command, _BUILD_LIMIT_S).exit_code != 0:
                return "cuda_runtime.h"
            made.replace(target)
    return str(header)


def link_command(
    objects: Sequence[Path],
    executable: Path,
    *,
    debug: bool,
    observer: ObserverKind | None = None,
    shared: bool = False,
) -> list[str]:
    """Command that links objects with the executor, which is built first if necessary."""
    runtime = runtime_object(debug=debug, observer=observer, shared=shared)
    sanitizer = _sanitizer() if debug else []
    if debug and "clang" in version():
        sanitizer.append(
            "-Wl,-z,muldefs"
        )  # its library has a handler for misaligned accesses too, and the first one counts
    kind = ["-shared"] if shared else []
    return [compiler(), *kind, *map(str, objects), str(runtime), *sanitizer, "-pthread", "-lm", "-o", str(executable)]


def runtime_object(*, debug: bool, observer: ObserverKind | None = None, shared: bool = False) -> Path:
    """The executor's object file, built at the first call and kept in the cache folder."""
    target = runtime_place(debug=debug, observer=observer, shared=shared)
    if parts.whole(target) and caching.kept(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with parts.alone(target.with_suffix(".lock"), "the executor"):
        if not (parts.whole(target) and caching.kept(target)):
            with parts.workshop(target) as building:
                _build_runtime(building / "executor.o", debug=debug, observer=observer, shared=shared).replace(target)
    return target


def runtime_place(*, debug: bool, observer: ObserverKind | None = None, shared: bool = False) -> Path:
    """Where the executor's object file is kept."""
    plain = "-shared" if shared else "-debug" if debug else ""
    kind = f"-{observer}-{observer_fingerprint(observer)}" if observer else plain
    return resources.cache() / "cpu-runtime" / f"{fingerprint()}{kind}.o"


def _build_runtime(target: Path, *, debug: bool, observer: ObserverKind | None, shared: bool) -> Path:
    kind = ["-O1", *_sanitizer()] if debug else ["-O2", *(_IN_LIBRARY if shared else ())]
    sources = sorted(RUNTIME.glob("*.cpp"))
    if observer is not None:
        kind = ["-O3", "-DCUDAMASTER_CPU_OBSERVED=1"]
        if observer == "check":
            kind.append("-DCUDAMASTER_CPU_CHECKED=1")
        sources += sorted((RUNTIME / observer).glob("*.cpp"))
    # All sources at once: most of the time goes into the standard library's headers, which they share.
    together = target.with_suffix(".cpp")
    together.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    built = run_limited(
        [
            compiler(),
            *_RUNTIME_FLAGS,
            _NO_SHADOW_STACK[_machine()],
            *kind,
            *_common(),
            f"-I{INCLUDE}",
            f"-I{RUNTIME}",
            "-c",
            str(together),
            "-o",
            str(target),
        ],
        _BUILD_LIMIT_S,
    )
    require_room(built)
    if built.exit_code != 0:
        raise DeviceError(
            f"{compiler()} cannot build the CPU device's executor: {built.stderr[-2000:]}",
            "Set CXX to a C++17 compiler for x86-64 or aarch64 (g++ 11 or later, clang++ 14 or later).",
        )
    return target


@cache
def _own_sources() -> str:
    digest = hashlib.sha256()
    for folder, pattern in ((INCLUDE, "**/*"), (RUNTIME, "*"), (_HERE, "*.py")):
        for file in sorted(path for path in folder.glob(pattern) if path.is_file()):
            digest.update(file.relative_to(_HERE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def processor() -> str:
    """The processor as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def processor_fingerprint() -> str:
    """Hash over the processor and its abilities, some of which compiled code uses."""
    return hashlib.sha256("\0".join([processor(), _machine(), *sorted(_features())]).encode()).hexdigest()[:16]


@cache
def _machine() -> str:
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


@cache
def _features() -> frozenset[str]:
    """What the processor can do, as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    found = (line.split(":", 1)[1] for line in lines if line.lower().startswith(("flags", "features")))
    return frozenset(next(found, "").split())


@cache
def observer_fingerprint(observer: ObserverKind) -> str:
    """Hash over what an observed build depends on besides `fingerprint`: the observer's sources."""
    digest = hashlib.sha256()
    for file in sorted((RUNTIME / observer).iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def fingerprint() -> str:
    """Hash over compiler, C library, flags, instruction set and our own sources: equal hashes build equal programs."""
    parts = [compiler(), version(), *platform.libc_ver(), *_common(), *_RUNTIME_FLAGS, *_SANITIZER, _own_sources()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
