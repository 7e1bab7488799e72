"""What the text does not show of the wrapper's interface, checked by compilers: g++, and nvcc if it is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudamaster.guards.signature import Signature, compiler_check, refused_by_compiler
from cudamaster.guards.source import check_source, left_to_compiler

from .support import NVCC, needs_nvcc

INTERFACE = Signature("task_optimized", (("const float*", "x"), ("__nv_bfloat16*", "y"), ("int", "n"), ("float", "a")))
COMPILERS = ["g++", pytest.param("nvcc", marks=[needs_nvcc, pytest.mark.nvcc])]
BEFORE = """
struct __nv_bfloat16;
template <class T> using Ptr = T*;
template <class T> struct Of { typedef const T* in; typedef T* out; };
typedef float Row[4];
template <bool B, class T, class F> struct pick { typedef T type; };
template <class T, class F> struct pick<false, T, F> { typedef F type; };
"""
RIGHT = {
    "alias template": "Ptr<float> x, Ptr<__nv_bfloat16> y, int n, float a",
    "const inside": "Ptr<const float> const x, Ptr<volatile __nv_bfloat16> y, int n, float a",
    "member types": "Of<float>::in x, Of<__nv_bfloat16>::out y, pick<true, int, long>::type n, const float a",
    "parentheses": "float (*x), __nv_bfloat16* (y), int (n), decltype(1.0f) a",
    "array by a name": "Row x, Ptr<__nv_bfloat16> y, int n, float a",
}
WRONG = {
    "reference": ("Ptr<float>& x, __nv_bfloat16* y, int n, float a", 0),
    "pointer to an array": ("Row* x, __nv_bfloat16* y, int n, float a", 0),
    "other element": ("const float* x, Ptr<unsigned short> y, int n, float a", 1),
    "wider integer": ("const float* x, Ptr<__nv_bfloat16> y, pick<false, int, long>::type n, float a", 2),
    "wider float": ("const float* x, __nv_bfloat16* y, int n, decltype(1.0) a", 3),
    "reference behind an alias": ("const float* x, __nv_bfloat16* y, int n, pick<true, float&, int>::type a", 3),
    "function": ("const float* x, __nv_bfloat16* y, int (n)(), float a", 2),
}


def compiled(code: str, compiler: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The compiler over the code, in which only the types have to be right."""
    source = folder / "candidate.cu"
    source.write_text(code.replace("#include <cuda_bf16.h>", "") if compiler == "g++" else code)
    words = ["g++", "-std=c++17", "-x", "c++"] if compiler == "g++" else [NVCC or "nvcc", "-arch=sm_90", "-std=c++17"]
    return subprocess.run(
        [*words, "-c", str(source), "-o", str(folder / "candidate.o")], capture_output=True, text=True, check=False
    )


def region(parameters: str, compiler: str) -> str:
    before = BEFORE.replace("struct __nv_bfloat16;", "#include <cuda_bf16.h>") if compiler == "nvcc" else BEFORE
    return f'{before}extern "C" void task_optimized({parameters}) {{}}\n'


@pytest.mark.slow(but=["const inside-g++"])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_called_the_same_way_compiles(name: str, compiler: str, tmp_path: Path) -> None:
    """Whatever names the type, and whatever is const."""
    code = region(RIGHT[name], compiler)
    assert check_source(code, INTERFACE, None) is None
    undecided = left_to_compiler(code, INTERFACE, None)
    assert undecided
    done = compiled(code + compiler_check(INTERFACE, undecided), compiler, tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.slow(but=[*(f"{name}-g++" for name in WRONG), "reference-nvcc"])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_called_another_way_is_named(name: str, compiler: str, tmp_path: Path) -> None:
    """By the very parameter that differs."""
    parameters, at = WRONG[name]
    code = region(parameters, compiler)
    assert check_source(code, INTERFACE, None) is None
    undecided = left_to_compiler(code, INTERFACE, None)
    done = compiled(code + compiler_check(INTERFACE, undecided), compiler, tmp_path)
    assert done.returncode != 0
    refused = refused_by_compiler(done.stderr + done.stdout, undecided)
    assert refused is not None
    assert refused.at == at
    assert refused.written in parameters


@pytest.mark.parametrize("words", ["#define T double", "#define type int", "#define value true", "#define N 0"])
def test_macros_of_the_region_do_not_reach_it(words: str, tmp_path: Path) -> None:
    """The answer is the same, whatever the region calls something."""
    parameters, _ = WRONG["other element"]
    code = f"{region(parameters, 'g++')}{words}\n"
    undecided = left_to_compiler(code, INTERFACE, None)
    done = compiled(code + compiler_check(INTERFACE, undecided), "g++", tmp_path)
    assert refused_by_compiler(done.stderr, undecided) is not None
