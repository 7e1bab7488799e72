"""The region after the preprocessor: what headers and macros may change of it, and which files are read."""

from pathlib import Path

import pytest

from cudamaster.guards.preprocess import preprocess
from cudamaster.guards.source import check_source

from .support import CUDA_HEADERS, SIGNATURE, judge, needs_nvcc, region


@needs_nvcc
@pytest.mark.nvcc
def test_header_macro_hides_nothing() -> None:
    """A macro of a system header can paste a keyword: with the headers at hand it is seen."""
    code = region("__CONCAT(sta, tic) int calls;", includes="#include <cuda_runtime.h>\n#include <cstdlib>\n")
    refusal = judge(code, headers=True)
    assert refusal is not None
    assert "mutable global" in refusal.reason


@needs_nvcc
@pytest.mark.nvcc
def test_headers_are_really_read() -> None:
    """Tests with headers would prove nothing if these were not found."""
    assert len(CUDA_HEADERS) == 2
    code = region("#if CUDART_VERSION > 1000 && defined(CUDART_CB)\nint calls;\n#endif")
    assert judge(code, headers=True) is not None
    assert judge(code) is None


def test_preprocessor_errors_are_refusals() -> None:
    """An #error or a broken directive of the region comes back with its line."""
    refusal = judge(region("#error no"))
    assert refusal is not None
    assert refusal.line is not None


def test_closed_files_are_not_read(tmp_path: Path) -> None:
    """A file that the guard refuses is not opened before it is refused."""
    secret = tmp_path / "secret"
    secret.write_text("int the_secret;\n")
    for code in (f'#include "{secret}"', f"#include <{secret}>", f'#def\\\nine H\n#in\\\nclude "{secret}"'):
        expanded = preprocess(code, "g++", [], [])
        assert "the_secret" not in str(expanded)
    assert "the_secret" in str(preprocess("#include <cuda_runtime.h>", "g++", [fake(tmp_path)], []))


def fake(folder: Path) -> Path:
    """A folder with a runtime header that has the secret in it."""
    (folder / "cuda_runtime.h").write_text("int the_secret;\n")
    return folder


def test_preprocess_keeps_qualifiers(tmp_path: Path) -> None:
    """A header that turns __global__ into nothing, as the CPU device's does, hides no kernel."""
    (tmp_path / "cuda_runtime.h").write_text("#define __global__\n#define __device__\n")
    code = region("__global__ void k(int) {}")
    expanded = preprocess(code, "g++", [tmp_path], [])
    assert isinstance(expanded, str)
    assert "__global__ void k(int)" in expanded
    assert check_source(code, SIGNATURE, expanded) is None
    kept = region("__global__ void k(int) {}", "auto f = [] __global__ { static int c; return c++; }; f();")
    refusal = check_source(kept, SIGNATURE, preprocess(kept, "g++", [tmp_path], []))  # type: ignore[arg-type]
    assert refusal is not None
    assert "not understood" in refusal.reason
