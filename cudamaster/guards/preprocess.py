"""The region as the compiler's preprocessor leaves it: macros expanded, untaken branches gone.

CUDA's own qualifiers are hidden from the preprocessor and put back afterwards, because real CUDA headers and the
CPU device's turn them into different things and the source guard has to see them as they were written. Where a
header is missing all includes are blanked and the rest is expanded alone: macros of the region can never hide
anything, macros of headers then stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core import keys
from cudamaster.guards.headers import is_allowed
from cudamaster.guards.lexer import Kind, directives, lex
from cudamaster.guards.refusal import Refusal

REGION_FILE = "candidate.cu"

# What nvcc 13 defines in the pass that makes the host code; the device "cuda" passes these.
NVCC_DEFINES = (
    "__CUDACC__",
    "__NVCC__",
    "__CUDACC_VER_MAJOR__=13",
    "__CUDACC_VER_MINOR__=0",
    "__CUDACC_VER_BUILD__=88",
    "__CUDA_API_VER_MAJOR__=13",
    "__CUDA_API_VER_MINOR__=0",
    "__NVCC_DIAG_PRAGMA_SUPPORT__=1",
    "__CUDACC_DEVICE_ATOMIC_BUILTINS__=1",
)

QUALIFIERS = (
    "__global__",
    "__device__",
    "__host__",
    "__shared__",
    "__constant__",
    "__managed__",
    "__grid_constant__",
    "__launch_bounds__",
    "__cluster_dims__",
    "__block_size__",
    "__maxnreg__",
    "__align__",
    "__builtin_align__",
    "__forceinline__",
    "__noinline__",
    "__inline_hint__",
    "__restrict__",
)

HIDDEN_PREFIX = "mskb_hidden_"  # the source guard refuses mskb_* in a region, so nobody else can write it
_QUALIFIER = re.compile(r"(?<!\w)(" + "|".join(QUALIFIERS) + r")(?!\w)")
# Literal text first, which re finds by itself: it is a needle in a megabyte of headers.
_HIDDEN = re.compile(rf"{HIDDEN_PREFIX}(?<!\w{HIDDEN_PREFIX})(\w+)_hidden(?!\w)")
_MARKER = re.compile(r'\n# (\d+) "((?:[^"\\\n]|\\.)*)"((?: \d)*)(?=\n|$)')
_MISSING = re.compile(r"No such file or directory|file not found")
_DIAGNOSTIC = re.compile(rf"{re.escape(REGION_FILE)}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)")
_DEFINED = re.compile(r"^#define (\w+)(.*)$", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_HEADER = re.compile(r"<[\w./+-]+>|\"[\w./+-]+\"")
_SIMPLE = frozenset({"", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "pragma"})
RULES = Path(__file__)  # what `differing` finds depends on it, so whoever keeps that has to keep it by this
_OPENING = frozenset({"include", "include_next", "import", "embed"})
_LIMIT_S = 30
_ENDLESS = "the macros expand without end"
_OUTPUT_LIMIT = 32 * 1024 * 1024


@dataclass(frozen=True)
class Region:
    """The region alone: its text, the line of each physical line of it, and the
    files that its includes entered."""

    text: str
    lines: tuple[int, ...]
    entered: tuple[tuple[str, int], ...]


def preprocess(
    code: str,
    compiler: str,
    include_dirs: Sequence[Path],
    defines: Sequence[str],
    *,
    standard: str = "c++17",
    prelude: Sequence[str] = (),
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
) -> str | Refusal:
    """`compiler -E` over the region, with line markers, or a Refusal with the preprocessor's own complaint.

    `defines` are NAME or NAME=VALUE: the compile command's definitions, and those that the real compiler predefines
    (NVCC_DEFINES). `prelude` names headers that the compiler includes first (cuda_runtime.h). Files that a region
    may not open are not read here either. `flags` are further flags, on which the compiler's own macros depend.
    `libraries` are those whose headers the task opens, in folders among `include_dirs`. The caller explains the OSError
    for a compiler that cannot be started.
    """
    hidden = _QUALIFIER.sub(rf"{HIDDEN_PREFIX}\1_hidden", code)
    options, folders, first = _options(include_dirs, defines, standard, prelude, flags)
    closed = _opens_closed_files(code, libraries)
    done = None if closed else _expand([compiler, *options, *folders, *first], hidden)
    if done is None or (done.returncode != 0 and _MISSING.search(done.stderr)):
        known = {define.partition("=")[0] for define in defines}
        version = [] if "CUDART_VERSION" in known else ["-DCUDART_VERSION=13000"]
        done = _expand([compiler, *options, *version], _without_includes(hidden))
    if done.returncode != 0:
        found = _DIAGNOSTIC.search(done.stderr)
        line, message = (int(found[1]), found[2]) if found else (None, done.stderr.strip()[:200])
        fix = "Use templates and loops in their place." if message == _ENDLESS else "Correct this directive or macro."
        return Refusal("source", f"the preprocessor says: {_restored(message)}", line, fix)
    return _restored(done.stdout)


def macros(
    headers: Sequence[str],
    compiler: str,
    include_dirs: Sequence[Path],
    defines: Sequence[str],
    *,
    standard: str,
    prelude: Sequence[str],
    flags: Sequence[str],
) -> dict[str, str] | None:
    """The macros that a region finds defined behind its includes, by name; None where a header cannot be read.

    The arguments are those of `preprocess`; `headers` are as `plain_headers` has them.
    """
    options, folders, first = _options(include_dirs, defines, standard, prelude, flags)
    done = _expand([compiler, *options, *folders, *first, "-dM"], "".join(f"#include {name}\n" for name in headers))
    return None if done.returncode != 0 else dict(_DEFINED.findall(done.stdout))


def differing(plain: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> set[str]:
    """Names of macros whose expansion may not be the same in all builds.

    Such are those that are not defined alike, those whose text mentions one of them, and those that put names together.
    """
    found = {"__COUNTER__"} | {name for name, text in plain.items() if "##" in text}
    for other in others:
        found |= {name for name in {*plain, *other} if plain.get(name) != other.get(name)}
    mentioned = {name: frozenset(_WORD.findall(text)) for name, text in plain.items()}
    while more := {name for name, words in mentioned.items() if name not in found and not words.isdisjoint(found)}:
        found |= more
    return found - {*QUALIFIERS}  # a region's own are hidden


def plain_headers(code: str) -> tuple[str, ...] | None:
    """What a region includes, if the names in its text say which macros it uses; otherwise None.

    They do not where names are put together or written in another way, where the region chooses what it includes, or
    where it defines a macro that a header may look at.
    """
    text = lex(code)
    if any(sign in text.spliced for sign in ("##", "%:", "??")):
        return None
    if any(token.kind is Kind.BAD or token.text == "\\" for token in text.tokens):
        return None
    headers: list[str] = []
    others = False
    for directive in directives(text.tokens):
        if directive.name == "include":
            name = "".join(token.text for token in directive.rest)
            if others or not _HEADER.fullmatch(name):
                return None
            headers.append(name)
        elif directive.name not in _SIMPLE:
            return None
        else:
            others = others or directive.name != "pragma"
    return tuple(headers)


def names_of(code: str) -> set[str]:
    """All names in a text, those of directives too."""
    return {token.text for token in lex(code).tokens if token.kind is Kind.NAME}


def _options(
    include_dirs: Sequence[Path], defines: Sequence[str], standard: str, prelude: Sequence[str], flags: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    options = [*flags, f"-std={standard}", *(f"-D{define}" for define in defines)]
    folders = [option for folder in include_dirs for option in ("-isystem", str(folder))]
    return options, folders, [option for header in prelude for option in ("-include", header)]


def region_of(preprocessed: str) -> Region:
    """What stands in the region itself, by the line markers; the code of headers is left out."""
    text: list[str] = []
    lines: list[int] = []
    entered: list[tuple[str, int]] = []
    inside, current, begin = False, 1, 0

    def take(end: int) -> None:
        """Keep the lines since the last marker, where they are the region's."""
        nonlocal current
        if inside and begin <= end:
            text.extend(rows := whole[begin:end].split("\n"))
            lines.extend(range(current, current := current + len(rows)))

    whole = "\n" + preprocessed
    for marker in _MARKER.finditer(whole):
        take(marker.start())
        name, flags = marker[2], marker[3].split()
        if inside and "1" in flags:
            entered.append((name, max(current - 1, 1)))
        inside, begin = name == REGION_FILE, marker.end() + 1
        if inside:
            current = int(marker[1])
            # A marker can cut a line in two (system macros); the parts are one logical line for directives,
            # and none is inside a macro's expansion, so a line end between them is harmless.
    take(len(whole))
    return Region("\n".join(text), tuple(lines), tuple(entered))


def _expand(command: Sequence[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run the preprocessor, bounded in time and in output: a few nested macros can ask for terabytes."""
    environment = {key: value for key, value in keys.for_tools().items() if not key.endswith("_PATH")}
    environment |= {"LC_ALL": "C"}
    with tempfile.TemporaryDirectory() as folder:
        source, said, empty = Path(folder) / REGION_FILE, Path(folder) / "stderr", Path(folder) / "empty"
        source.write_text(f'# 1 "{REGION_FILE}"\n{code}\n', encoding="utf-8", errors="surrogatepass")
        empty.mkdir()  # so that quoted includes find nothing beside the region
        with source.open("rb") as given, said.open("wb") as errors:
            process = subprocess.Popen(
                [*command, "-E", "-x", "c++", "-"],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=empty,
                env=environment,
                start_new_session=True,
            )
            timer = threading.Timer(_LIMIT_S, _stop, [process])
            timer.start()
            try:
                output = process.stdout.read(_OUTPUT_LIMIT + 1) if process.stdout else b""
                if len(output) > _OUTPUT_LIMIT:
                    _stop(process)
            finally:
                if process.stdout:
                    process.stdout.close()
                code_of_exit = process.wait()
                timer.cancel()
        message = said.read_text(encoding="utf-8", errors="replace")
    if code_of_exit < 0:
        message = _ENDLESS
    return subprocess.CompletedProcess(command, code_of_exit, output.decode("utf-8", "replace"), message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver and the compiler proper that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _restored(text: str) -> str:
    return _HIDDEN.sub(r"\1", text)


def _opens_closed_files(code: str, libraries: Sequence[str]) -> bool:
    """Whether the region asks for a file that is not open: the source guard refuses it, and it is not even read."""
    tokens = lex(code).tokens
    if any(token.kind is Kind.BAD for token in tokens):
        return True  # what follows it was not looked at
    for directive in directives(tokens):
        name = "".join(token.text for token in directive.rest)
        plain = name[:1] in ("<", '"') and is_allowed(name[1:-1], libraries)
        if directive.name in _OPENING and not (directive.name == "include" and plain):
            return True
    return False


def _without_includes(code: str) -> str:
    rows = code.split("\n")
    for directive in directives(lex(code).tokens):
        if directive.name in _OPENING:
            row = directive.line - 1
            while rows[row].rstrip().endswith("\\") and row + 1 < len(rows):
                rows[row] = ""
                row += 1
            rows[row] = ""
    return "\n".join(rows)
