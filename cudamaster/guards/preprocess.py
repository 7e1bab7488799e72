"""The region as the compiler's preprocessor leaves it: macros expanded, untaken branches gone.

CUDA's own qualifiers are hidden from the preprocessor and put back afterwards, because real CUDA headers and the
CPU device's turn them into different things and the source guard has to see them as they were written. Where a
header is missing all includes are blanked and the rest is expanded alone: macros of the region can never hide
anything, macros of headers then stay as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.guards.lexer import directives, lex
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
_HIDDEN = re.compile(rf"(?<!\w){HIDDEN_PREFIX}(\w+)_hidden(?!\w)")
_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)$')
_MISSING = re.compile(r"No such file or directory|file not found")
_DIAGNOSTIC = re.compile(rf"{re.escape(REGION_FILE)}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)")
_LIMIT_S = 60


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
) -> str | Refusal:
    """`compiler -E` over the region, with line markers, or a Refusal with the preprocessor's own complaint.

    `defines` are NAME or NAME=VALUE: what the compile command defines and what the real compiler predefines
    (NVCC_DEFINES). `prelude` names headers that the compiler includes first (cuda_runtime.h). An OSError for a
    compiler that cannot be started is the caller's to explain.
    """
    hidden = _QUALIFIER.sub(rf"{HIDDEN_PREFIX}\1_hidden", code)
    options = [f"-std={standard}", *(f"-D{define}" for define in defines)]
    folders = [option for folder in include_dirs for option in ("-isystem", str(folder))]
    first = [option for header in prelude for option in ("-include", header)]
    done = _expand([compiler, *options, *folders, *first], hidden)
    if done.returncode != 0 and _MISSING.search(done.stderr):
        known = {define.partition("=")[0] for define in defines}
        version = [] if "CUDART_VERSION" in known else ["-DCUDART_VERSION=13000"]
        done = _expand([compiler, *options, *version], _without_includes(hidden))
    if done.returncode != 0:
        found = _DIAGNOSTIC.search(done.stderr)
        line, message = (int(found[1]), found[2]) if found else (None, done.stderr.strip()[:200])
        return Refusal(
            "source", f"the preprocessor says: {_restored(message)}", line, "Correct the directive or the macro."
        )
    return _restored(done.stdout)


def region_of(preprocessed: str) -> Region:
    """What stands in the region itself, by the line markers; the code of headers is left out."""
    text: list[str] = []
    lines: list[int] = []
    entered: list[tuple[str, int]] = []
    inside = False
    current = 1
    for line in preprocessed.split("\n"):
        marker = _MARKER.match(line)
        if not marker:
            if inside:
                text.append(line)
                lines.append(current)
                current += 1
            continue
        name, flags = marker[2], marker[3].split()
        if inside and "1" in flags:
            entered.append((name, max(current - 1, 1)))
        inside = name == REGION_FILE
        if inside:
            current = int(marker[1])
            # A marker can cut a line in two (system macros); the parts are one logical line for directives,
            # and none is inside a macro's expansion, so a line end between them is harmless.
    return Region("\n".join(text), tuple(lines), tuple(entered))


def _expand(command: Sequence[str], code: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_PATH")}
    environment |= {"LC_ALL": "C"}
    with tempfile.TemporaryDirectory() as empty:  # so that quoted includes find nothing beside the region
        try:
            return subprocess.run(
                [*command, "-E", "-x", "c++", "-"],
                input=f'# 1 "{REGION_FILE}"\n{code}\n',
                capture_output=True,
                text=True,
                errors="replace",
                cwd=empty,
                env=environment,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            slow = f"{REGION_FILE}:1: error: expanding the macros takes longer than {_LIMIT_S} s"
            return subprocess.CompletedProcess(list(command), 1, "", slow)


def _restored(text: str) -> str:
    return _HIDDEN.sub(r"\1", text)


def _without_includes(code: str) -> str:
    rows = code.split("\n")
    for directive in directives(lex(code).tokens):
        if directive.name == "include":
            row = directive.line - 1
            while rows[row].rstrip().endswith("\\") and row + 1 < len(rows):
                rows[row] = ""
                row += 1
            rows[row] = ""
    return "\n".join(rows)
