"""Compile commands: a refusal, or flags of which none can name a file, a program, a library or a taken macro."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cudamaster.devices.cpu import toolchain
from cudamaster.guards.flags import OBJECT, SOURCE, Flags, parse_command
from cudamaster.guards.refusal import Refusal

from .support import damaged, examples, within

BUILD = "-c candidate.cu -o candidate.o"
HONEST = [
    f"nvcc -O3 -std=c++17 {BUILD}",
    f"nvcc -arch=sm_90a --use_fast_math -DTILE=32 -D UNROLL {BUILD}",
    f"nvcc -gencode arch=compute_90,code=[sm_90,compute_90] -Xptxas -v,-dlcm=ca {BUILD}",
    f"nvcc --maxrregcount 64 -Xcompiler -O3,-Wall --prec-div=true -lineinfo {BUILD}",
    f"nvcc -O 3 --std c++20 --define-macro=T=bf16 -diag-suppress 177,550 --restrict {BUILD}",
]
WORDS = [
    "nvcc", "-c", "candidate.cu", "-o", "candidate.o", "-o/tmp/x", "-ocandidate.o", "/tmp/x.cu", "../x.cu", "@flags",
    "@/tmp/x", "-O3", "-O", "3", "-arch", "-arch=sm_90", "sm_90", "sm_٩٠", "-gencode", "arch=compute_90,code=sm_90",
    "-std=c++17", "-std", "-D", "-DX", "-DX=1", "-DX=x/y", "-D_X=1", "-D__global__=", "-Dfloat=int", "-Dmskb_x",
    "-DcudaMalloc=f", "-DX=getenv", "-DX=é", "-DX=٣", "-U__CUDACC__", "--define-macro", "--define-macro=X",
    "-include", "-include=/etc/passwd", "--pre-include", "-I.", "-I", "-L/tmp", "-lm", "-lcublas", "-Xlinker",
    "-Xlinker=-wrap=malloc", "-Xcompiler", "-Xcompiler=-O3,-include,/etc/passwd", "-fPIC",
    "-Xcompiler=-Wno-x,-fplugin=x.so", "--compiler-options", "-Wl,-rpath,/tmp", "-Wa,-a", "-Xptxas=-v,-o,x",
    "--ptxas-options=-O3", "-Xptxas", "-ccbin", "-ccbin=/tmp/gcc", "--compiler-bindir", "-rdc=true", "-dlink",
    "-optf", "--options-file=x", "--run", "--keep", "-x", "c++", "-E", "-maxrregcount=255", "-maxrregcount=٣",
    "--diag-suppress=1,٢", "--split-compile=٤", "-Xptxas=--register-usage-level=٥", "--", "-", "=", ",", "'", '"',
    "'-O3 -I/tmp'", "\\", "$HOME", "`id`", ";", "|", "&&", ">", "\n", "\r", "\t", "\x0b", "\x85", "\u2028", "\x00",
    "-Dx\u200b", "A=1", "~", "*", "(", "#", "!", "-O3=", "-w=1", "-=x", "-" * 300, "x" * 5000,
]  # fmt: skip
OPEN = [
    "-O3", "-O 2", "-std=c++17", "--std c++20", "-arch=sm_90", "-arch native",
    "-gencode arch=compute_90a,code=sm_90a", "-w", "-lineinfo", "--use_fast_math", "-fmad=false", "--prec-div true",
    "-maxrregcount 64", "-Xptxas -v,-dlcm=ca", "-Xptxas=--fmad=true", "-Xcompiler -O3,-Wall",
    "-Xcompiler=-Wno-unused,-fPIC", "-DTILE=32", "-D UNROLL", "--define-macro=T=bf16", "-diag-suppress 177,550",
    "--restrict", "--expt-relaxed-constexpr", "--extended-lambda", "-res-usage", "-m64", "-split-compile=2",
    "--generate-line-info",
]  # fmt: skip
built = st.lists(st.sampled_from(OPEN), min_size=1, max_size=8, unique=True).map(
    lambda words: f"nvcc {' '.join(words)} {BUILD}"
)
commands = st.one_of(
    built,
    built.flatmap(lambda text: damaged(text, WORDS, rounds=1)),
    st.sampled_from(HONEST).flatmap(lambda text: damaged(text, [*WORDS, *(f" {word} " for word in WORDS)])),
    st.lists(st.sampled_from(WORDS), max_size=9).map(lambda words: " ".join(["nvcc", *words, BUILD])),
    st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from(["", "=", " "])).map(
        lambda t: f"nvcc {t[0]}{t[2]}{t[1]} {BUILD}"
    ),
    st.text(max_size=60),
)

# Said here again, apart from the guard's own tables: all that a flag may look like once it was let through.
_WORD = r"[a-z0-9.+-]+"
_OPEN = re.compile(
    rf"-O[0-3]|-w|-m64|-[a-z][a-z-]+|-Wno-deprecated-(?:gpu-targets|declarations)"
    rf"|-(?:std|fmad|ftz|prec-div|prec-sqrt|use_fast_math|maxrregcount|split-compile)={_WORD}|-diag-suppress=[0-9,]+"
    rf"|-use_fast_math|-arch=(?:native|(?:sm|compute)_[0-9]+[af]?)"
    rf"|-gencode=arch=compute_[0-9]+[af]?,code=\[?[a-z0-9_,]+\]?"
    rf"|-Xptxas=--?[A-Za-z0-9=-]+|-Xcompiler=-(?:O[0-3]|Wall|Wextra|Wno-{_WORD}|fno-strict-aliasing|fPIC|m\w+=native)"
    r"|-D[A-Za-z_][A-Za-z0-9_]*(?:=-?[A-Za-z0-9_.]+)?",
    re.ASCII,
)
_BARE = {"-lineinfo", "-restrict", "-res-usage", "-resource-usage", "-extended-lambda", "-expt-relaxed-constexpr",
         "-extra-device-vectorization"}  # fmt: skip
_TAKEN = re.compile(r"__.*|_[A-Z].*|_*mskb.*|_*MSKB.*|cuda[A-Z].*|static|const|extern|float|main|std|threadIdx|memcpy")


def breach(argument: str) -> str | None:
    """What is wrong with one argument that the guard let through."""
    if not argument.isascii() or not argument.isprintable() or " " in argument:
        return "is no plain word"
    if not _OPEN.fullmatch(argument):
        return "has no open form"
    if re.fullmatch(r"-[a-z][a-z-]+", argument) and argument not in _BARE | {"-w"}:
        return "is no open switch"
    if any(part in argument for part in ("/", "\\", "@", "'", '"', "$")):
        return "can name a file"
    name, _, value = argument.removeprefix("-D").partition("=")
    if argument.startswith("-D") and (_TAKEN.fullmatch(name) or value in ("getenv", "dlopen", "system", "fork")):
        return "touches a taken name"
    return None


@examples(1500)
@given(commands)
@example(f"nvcc -maxrregcount=٣ {BUILD}")
@example(f"nvcc -arch=sm_٩٠ {BUILD}")
def test_what_is_let_through_is_harmless(command: str) -> None:
    """Flags or a refusal with reason and fix; flags are plain words of the open forms, and read again as they are."""
    with within(2):
        answer = parse_command(command)
    if isinstance(answer, Refusal):
        assert answer.reason
        assert answer.fix
        assert "\n" not in str(answer)
        return
    assert isinstance(answer, Flags)
    assert not [(argument, breach(argument)) for argument in answer.arguments if breach(argument)]
    assert parse_command(" ".join(["nvcc", *answer.arguments, BUILD])) == answer
    assert not {SOURCE, OBJECT, "-c", "-o"} & set(answer.arguments)
    assert answer.standard in {"c++14", "c++17", "c++20"}
    for flag in toolchain.candidate_flags(answer.arguments):
        assert re.fullmatch(r"-std=c\+\+(17|20)|-O[0-3]|-D\w+(=-?[\w.]+)?", flag, re.ASCII)


@pytest.mark.nvcc
def test_nvcc_reads_what_is_let_through_as_flags(tmp_path: Path) -> None:
    """No open flag takes the next word with it: nvcc compiles the one source to the one object."""
    seen: set[tuple[str, ...]] = set()

    @examples(150)
    @given(st.one_of(built, built.flatmap(lambda text: damaged(text, WORDS, rounds=1))))
    def collect(command: str) -> None:
        answer = parse_command(command)
        if isinstance(answer, Flags) and answer.arguments:
            seen.add(answer.arguments)

    collect()
    assert len(seen) > 20
    (tmp_path / SOURCE).write_text("void nothing() {}\n")
    for arguments in sorted(seen):
        words = ["nvcc", *arguments, "-c", SOURCE, "-o", OBJECT, "--dryrun"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr[-300:])
        assert f'"{SOURCE}"' in done.stderr
        assert f'-o "{OBJECT}"' in done.stderr
