"""The flag guard: the command is read, never run, and only flags of the allow-list remain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudamaster.guards.flags import Flags, parse_command
from cudamaster.guards.refusal import Refusal

BUILD = "-c candidate.cu -o candidate.o"

HONEST = {
    f"nvcc {BUILD}": (),
    f"nvcc -O3 -std=c++17 {BUILD}": ("-O3", "-std=c++17"),
    "nvcc -o candidate.o -c candidate.cu -O3": ("-O3",),
    f"nvcc -O 3 --std c++20 {BUILD}": ("-O3", "-std=c++20"),
    f"nvcc -arch=sm_90a {BUILD}": ("-arch=sm_90a",),
    f"nvcc --gpu-architecture native {BUILD}": ("-arch=native",),
    f"nvcc -gencode arch=compute_90a,code=sm_90a {BUILD}": ("-gencode=arch=compute_90a,code=sm_90a",),
    f"nvcc --use_fast_math -fmad=false --prec-div=true {BUILD}": ("-use_fast_math", "-fmad=false", "-prec-div=true"),
    f"nvcc --maxrregcount 64 -lineinfo {BUILD}": ("-maxrregcount=64", "-lineinfo"),
    f"nvcc -Xptxas -v,-dlcm=ca -Xptxas=-O3 {BUILD}": ("-Xptxas=-v", "-Xptxas=-dlcm=ca", "-Xptxas=-O3"),
    f"nvcc -Xcompiler -O3,-Wall {BUILD}": ("-Xcompiler=-O3", "-Xcompiler=-Wall"),
    f"nvcc -DTILE=32 -D UNROLL -DT=bf16 {BUILD}": ("-DTILE=32", "-DUNROLL", "-DT=bf16"),
    f"nvcc --expt-relaxed-constexpr --expt-extended-lambda {BUILD}": ("-expt-relaxed-constexpr", "-extended-lambda"),
    f"nvcc -diag-suppress 177,550 --restrict {BUILD}": ("-diag-suppress=177,550", "-restrict"),
}

REFUSED = {
    "empty": "",
    "shell": f"nvcc {BUILD}; true",
    "pipe": f"nvcc {BUILD} | cat",
    "substitution": f"nvcc $(id) {BUILD}",
    "backquote": f"nvcc `id` {BUILD}",
    "redirect": f"nvcc {BUILD} > /dev/null",
    "two lines": f"nvcc {BUILD}\nnvcc",
    "other program": f"gcc {BUILD}",
    "path to nvcc": f"/tmp/nvcc {BUILD}",
    "environment": f"A=1 nvcc {BUILD}",
    "unclosed quote": f"nvcc '{BUILD}",
    "no source": "nvcc -c -o candidate.o",
    "other source": "nvcc -c other.cu -o candidate.o",
    "second source": f"nvcc {BUILD} harness.cu",
    "source twice": f"nvcc {BUILD} candidate.cu",
    "output elsewhere": "nvcc -c candidate.cu -o /tmp/candidate.o",
    "joined output": "nvcc -c candidate.cu -ocandidate.o",
    "no -c": "nvcc candidate.cu -o candidate.o",
    "library": f"nvcc -lcublas {BUILD}",
    "library folder": f"nvcc -L/tmp {BUILD}",
    "include folder": f"nvcc -I/tmp {BUILD}",
    "forced include": f"nvcc -include /etc/passwd {BUILD}",
    "pre-include": f"nvcc --pre-include x.h {BUILD}",
    "relocatable": f"nvcc -rdc=true {BUILD}",
    "device link": f"nvcc -dlink {BUILD}",
    "options file": f"nvcc -optf x {BUILD}",
    "response file": f"nvcc @x {BUILD}",
    "host compiler": f"nvcc -ccbin /tmp/gcc {BUILD}",
    "linker": f"nvcc -Xlinker -wrap=malloc {BUILD}",
    "compiler include": f"nvcc -Xcompiler -include,/etc/passwd {BUILD}",
    "compiler plugin": f"nvcc -Xcompiler -fplugin=x.so {BUILD}",
    "compiler assembler": f"nvcc -Xcompiler -Wa,-a {BUILD}",
    "instrumented": f"nvcc -Xcompiler -finstrument-functions {BUILD}",
    "ptxas file": f"nvcc -Xptxas -o,x {BUILD}",
    "old GPU": f"nvcc -arch=sm_70 {BUILD}",
    "old target": f"nvcc -gencode=arch=compute_70,code=sm_70 {BUILD}",
    "two targets": f"nvcc -arch=sm_80 -arch=sm_90 {BUILD}",
    "no value": f"nvcc {BUILD} -arch",
    "other standard": f"nvcc -std=c++11 {BUILD}",
    "keyword macro": f"nvcc -Dstatic= {BUILD}",
    "keyword macro plain": f"nvcc -Dconst {BUILD}",
    "another compiler's macro": f"nvcc -D__HIPCC__ {BUILD}",
    "CUDA macro": f"nvcc -D__global__ {BUILD}",
    "runtime macro": f"nvcc -DcudaMalloc=f {BUILD}",
    "harness macro": f"nvcc -DMSKB_CHECK {BUILD}",
    "macro to a forbidden name": f"nvcc -DF=getenv {BUILD}",
    "function macro": f"nvcc '-DF(x)=x' {BUILD}",
    "undefine": f"nvcc -U__CUDACC__ {BUILD}",
    "per-thread stream": f"nvcc --default-stream per-thread {BUILD}",
    "keep files": f"nvcc --keep {BUILD}",
    "dry run": f"nvcc --dryrun {BUILD}",
    "run": f"nvcc --run {BUILD}",
    "unknown": f"nvcc --something {BUILD}",
}


@pytest.mark.parametrize("command", HONEST)
def test_open_flags(command: str) -> None:
    """Both spellings of a flag become one."""
    flags = parse_command(command)
    assert isinstance(flags, Flags), str(flags)
    assert flags.arguments == HONEST[command]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_commands(name: str) -> None:
    """Whatever adds code, files or programs to the build is refused with a reason and a fix."""
    refusal = parse_command(REFUSED[name])
    assert isinstance(refusal, Refusal), str(refusal)
    assert refusal.reason
    assert refusal.fix


def test_architecture() -> None:
    """The device fills in its own architecture only where the command names none."""
    asked = {
        "": None,
        "-arch=sm_90": "sm_90",
        "-arch compute_90": "sm_90",
        "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a": "sm_80,sm_90a",
    }
    for text, arch in asked.items():
        flags = parse_command(f"nvcc {text} {BUILD}")
        assert isinstance(flags, Flags)
        assert flags.arch == arch


def test_parts_for_other_readers() -> None:
    """What the preprocessor has to know."""
    flags = parse_command(f"nvcc -O2 -DTILE=8 -std=c++20 -lineinfo {BUILD}")
    assert isinstance(flags, Flags)
    assert flags.defines == ("TILE=8",)
    assert flags.standard == "c++20"


WORDS = [
    "nvcc",
    "-c",
    "candidate.cu",
    "-o",
    "candidate.o",
    "-O3",
    "-arch",
    "sm_90",
    "-D",
    "-Xptxas",
    "-std=",
    "=",
    ",",
    "-lm",
]


@given(st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8))).map(" ".join)))
def test_never_raises(command: str) -> None:
    """Any text at all gives flags or a refusal, and what is accepted survives a second reading."""
    answer = parse_command(command)
    if isinstance(answer, Flags):
        again = parse_command(" ".join(["nvcc", *answer.arguments, BUILD]))
        assert again == answer
    else:
        assert answer.fix
