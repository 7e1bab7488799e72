"""Logs reach agents and people without folders of this machine, and with the lines of the region."""

from pathlib import Path

import pytest

from cudamaster.core.tool_logs import readable, summary, without_folders

REPORT = """=================================================================
cuda device fault: kernel k_kernel_optimized, block (0,0,0), thread (1,0,0): AddressSanitizer found an error, see below
==21974==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x615000001504 at pc 0x564429b2e139 bp 0x7 sp 0x7
READ of size 4 at 0x615000001504 thread T2
    #0 0x564429b2e138 in k_kernel_optimized(float*, int) /home/me/candidate.cu:7
    #1 0x564429b2e2ff in call<0, 1, 2, 3> /home/me/include/launch.h:34
    #2 0x564429b3e62d in executor::fibre_main() (/home/me/.cache/debug+0x5162d)

0x615000001504 is located 0 bytes to the right of 4-byte region [0x615000001500,0x615000001504)
allocated by thread T0 here:
    #0 0x7fc3ee8b7ffd in __interceptor_posix_memalign ../../../../src/libsanitizer/asan/asan_malloc_linux.cpp:145
    #1 0x564429b3b5ac in cudaMalloc (/home/me/.cache/debug+0x4e5ac)

Thread T2 created by T0 here:
    #0 0x7fc3ee849726 in __interceptor_pthread_create ../../../../src/libsanitizer/asan/asan_interceptors.cpp:207
    #1 0x564429af9e1b in dot_product /home/me/candidate.cu:44

SUMMARY: AddressSanitizer: heap-buffer-overflow /home/me/candidate.cu:7 in k_kernel_optimized(float*, int)
Shadow bytes around the buggy address:
  0x0c2a7fff8250: fa fa fa fa fa fa fa fa fa fa fa fa fa fa fa fa
==21974==ABORTING
"""


def test_a_checkers_report_is_cut_down_to_the_region() -> None:
    """What happened, where in the region, and to which buffer; no addresses, no frames of ours, no shadow bytes."""
    assert (
        readable(REPORT)
        == """\
cuda device fault: kernel k_kernel_optimized, block (0,0,0), thread (1,0,0): AddressSanitizer found an error, see below
ERROR: AddressSanitizer: heap-buffer-overflow
READ of size 4 thread T2
    k_kernel_optimized(float*, int) candidate.cu:7

is located 0 bytes to the right of 4-byte region
allocated by thread T0 outside the region

SUMMARY: AddressSanitizer: heap-buffer-overflow candidate.cu:7 in k_kernel_optimized(float*, int)"""
    )


def test_the_summary_is_short() -> None:
    """Kind and line; None where no checker spoke."""
    assert summary(REPORT) == "heap-buffer-overflow candidate.cu:7"
    assert summary("Segmentation fault") is None


def test_other_output_stays() -> None:
    """Words, divisions and relative paths are no folders."""
    text = "harness failure: 1 / 2 of a/b\n  indented 0x12\n== equal =="
    assert readable(text) == text


def test_folders_are_taken_out() -> None:
    """Only absolute paths, anywhere in a compiler's line."""
    log = (
        "In file included from /home/someone/x-1/include/cuda_runtime.h:23,\n/tmp/a.o: undefined (see http://x.org/y/z)"
    )
    assert without_folders(log) == "In file included from cuda_runtime.h:23,\na.o: undefined (see http://x.org/y/z)"


def test_a_folder_whose_name_has_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker names the region by the folder that the command was given in."""
    here = tmp_path / "my kernels"
    here.mkdir()
    monkeypatch.chdir(here)
    assert without_folders(f"{here}/candidate.cu:7: read\n{here}/b/x.h:1") == "candidate.cu:7: read\nx.h:1"
