"""Parts of a corpus: cutting, licences, secrets, and copies of what is held out."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from training.corpus_sources import GPL_HEAD, HISTOGRAM, MEDIAN, MIT

from cudamaster.core import resources
from cudamaster.training.corpus.comments import comments_of
from cudamaster.training.corpus.cutting import cut
from cudamaster.training.corpus.gathering import gather
from cudamaster.training.corpus.held_out import kernels_of
from cudamaster.training.corpus.licences import PERMISSIVE, Licences, allowed, names_in
from cudamaster.training.corpus.masking import masked
from cudamaster.training.corpus.sources import SourceFile, find
from cudamaster.training.shingles import NEAR_COPY, jaccard, shingles


def test_pieces_have_what_they_need_and_nothing_else() -> None:
    pieces, left = cut(SourceFile("histogram.cu", HISTOGRAM, ""), hidden=(1, 2))
    assert left == []
    by_name = {piece.names: piece.code for piece in pieces}
    assert len(by_name) == 3
    code = by_name[("count_kernel", "clear_kernel")]
    for part in ("#include <cuda_runtime.h>", '#include "bins.h"', "#ifdef WIDE_BINS", "#define BINS 1024", "#endif",
                 "#define CHECK(call)", "void check_status", "constexpr int kThreads", "// The bin of a value.",
                 "// Counts in shared memory first.\ntemplate <int kPerThread>\n__global__",
                 "void histogram("):  # fmt: skip
        assert code.count(part) == 1, part
    for part in ("UNUSED_LIMIT", "kNobody", "nobody_calls_this", "alone_kernel", "SPDX"):
        assert part not in code, part
    assert code.count("namespace counting {") == 1
    assert code.count("{") == code.count("}")
    assert "count_kernel" not in by_name[("alone_kernel",)]
    assert "constexpr int kNobody = 5;" in by_name[("nobody_calls_this",)]


def test_a_file_that_is_too_long_is_cut_between_functions() -> None:
    parts = [f"__global__ void k{number}(float* x) {{\n{f'    x[{number}] += helper(x[{number}]);' * 4}\n}}\n"
             for number in range(6)]  # fmt: skip
    launch = "void all(float* x) {\n" + "".join(f"    k{number}<<<1, 1>>>(x);\n" for number in range(6)) + "}\n"
    text = "__device__ float helper(float x) { return x * x; }\n" + "".join(parts) + launch
    assert len(cut(SourceFile("a.cu", text, ""))[0]) == 1
    pieces, left = cut(SourceFile("a.cu", text, ""), longest=700)
    assert [piece.names for piece in pieces] == [(f"k{number}",) for number in range(6)]
    assert left == []
    for number, piece in enumerate(pieces):
        assert parts[number].strip() in piece.code
        assert "float helper(float x)" in piece.code
        assert "void all" in piece.code
        assert piece.code.count("__global__ void k") == 6
        assert piece.code.count("(float* x);") == 5  # what the launcher needs of the others
    _, left = cut(SourceFile("a.cu", text, ""), longest=100)
    assert {each.why for each in left} == {"longer than 100 characters"}


def test_macros_and_both_branches_are_no_bar() -> None:
    text = """#if defined(__CUDACC__)
#define LIB_DEVICE __device__
#endif
LIB_NAMESPACE_BEGIN
namespace lib { namespace detail {
template <typename T> LIB_HOST_DEVICE LIB_INLINE T twice(T value) { return value + value; }
#ifdef FAST
LIB_GLOBAL __global__ void fill(float* x) {
#else
__global__ void fill(float* x, int n) {
#endif
    x[threadIdx.x] = twice(x[threadIdx.x]);
}
}}
LIB_NAMESPACE_END
"""
    pieces, left = cut(SourceFile("lib.cuh", text, ""))
    (piece,) = pieces
    assert left == []
    assert "#ifdef FAST\nLIB_GLOBAL __global__ void fill(float* x) {\n#else\n" in piece.code
    other = text.replace("#else\n", "#elif OTHER\n__global__ void fill(float* x, int n, int m) {\n#else\n")
    assert [each.names for each in cut(SourceFile("lib.cuh", other, ""))[0]] == [("fill",)]
    simple = text.replace("#ifdef FAST\nLIB_GLOBAL __global__ void fill(float* x) {\n#else\n", "").replace(
        "int n) {\n#endif\n", "int n) {\n")  # fmt: skip
    (piece,), left = cut(SourceFile("lib.cuh", simple, ""))
    assert left == []
    assert piece.names == ("fill",)
    assert "namespace lib {\nnamespace detail {\n" in piece.code
    assert "T twice(T value)" in piece.code


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception", ["Apache-2.0 WITH LLVM-exception"]),
        ("/* SPDX-License-Identifier: MIT */\n/* SPDX-License-Identifier: ISC */", ["MIT", "ISC"]),
        (MIT, ["MIT"]),
        (GPL_HEAD, ["GPL-3.0-or-later"]),
        ("GNU Lesser General\n * Public License version 2.1", ["LGPL-2.1-only"]),
        (" * Licensed under the Apache License, Version 2.0 (the \"License\");", ["Apache-2.0"]),
        ("Redistribution and use in source and binary forms, with or without", ["BSD-2-Clause"]),
        ("Redistribution and use in source and binary forms ... * Neither the name of X nor", ["BSD-3-Clause"]),
        ("NVIDIA CORPORATION and its licensors retain all intellectual property and proprietary rights",
         ["LicenseRef-proprietary"]),
        ("// Unlike a license, this comment grants nothing", []),
    ],
)  # fmt: skip
def test_licences_are_known_by_their_phrases(text: str, names: list[str]) -> None:
    assert names_in(text) == names


def test_what_expressions_allow() -> None:
    may = ("MIT", "Apache-2.0")
    yes = (
        "MIT",
        "mit",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-2.0-only OR MIT",
        "(MIT OR GPL-3.0-only) AND Apache-2.0",
    )
    no = ("unknown", "GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT (", "MIT see LICENSE", "", "AND", "()", "(" * 5000)
    assert [name for name in yes if not allowed(name, may)] == []
    assert [name for name in no if allowed(name, may)] == []
    assert all(allowed(name, ("any",)) for name in (*yes, *no))


def test_a_licence_comes_from_the_file_then_from_the_nearest_folder(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text(MIT)
    inner = tmp_path / "inner" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "inner" / "COPYING").write_text("GNU GENERAL PUBLIC LICENSE\n Version 2, June 1991\n")

    def of(path: str, text: str = "") -> str:
        return Licences(tmp_path).of(path, comments_of(text)).name

    assert of("a.cu") == "MIT"
    assert of("inner/deep/a.cu") == "GPL-2.0-only"
    assert of("inner/deep/a.cu", "// SPDX-License-Identifier: ISC\n") == "ISC"
    assert of("a.cu", "// Licensed under the Example Corp. terms\n") == "unknown"
    assert of("a.cu", "// Use of this source code is licensed under the terms in the LICENSE file\n") == "MIT"
    assert of("a.cu", "int x;\n// below: GNU General Public License v3\n") == "GPL-2.0-or-later"  # pasted in
    assert Licences(tmp_path / "inner").of("deep/a.cu", ()).name == "GPL-2.0-only"
    (tmp_path / "inner" / "COPYING").unlink()
    assert Licences(tmp_path / "inner").of("deep/a.cu", ()).name == "unknown"  # no higher than the folder
    (tmp_path / ".git").mkdir()
    found = Licences(tmp_path / "inner").of("deep/a.cu", ())  # but to the top of its checkout
    assert (found.name, found.place) == ("MIT", "../LICENSE")


@pytest.mark.parametrize(
    "secret",
    [
        'curl_easy("https://me:hunter22@host/x")',
        "// mail jo.doe+x@mail.example.com",
        'auto key = "sk-proj-abc123def456ghi789jkl";',
        "// ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        'password = "correct horse"',
        '"AKIAIOSFODNN7EXAMPLE"',
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_masked(secret: str) -> None:
    text, number = masked(f"int a;\n{secret}\nint b;\n")
    assert number == 1
    assert text.count("\n") == secret.count("\n") + 3
    assert not any(part in text for part in ("hunter22", "jo.doe", "abc123", "ghp_", "correct horse", "AKIA", "MIIE"))


def test_code_is_not_taken_for_a_secret() -> None:
    honest = (
        'asm volatile("@p bra.uni L; @%p1 mov.u32 %0, 1;"); const char* token = "x"; sk_results_of_all_threads[0] = 1;'
    )
    assert masked(honest) == (honest, 0)


def test_copies_of_the_benchmark_are_left_out(tmp_path: Path) -> None:
    """Renamed and with other block sizes; an unrelated kernel stays."""
    baseline = (resources.bench() / "fp32" / "layer_norm.cu").read_text(encoding="utf-8")
    copy = baseline.replace("layer_norm", "my_normaliser").replace("256", "512").replace("sum", "total")
    assert any("__global__" in text for text in kernels_of(copy))
    (tmp_path / "copy.cu").write_text(copy)
    (tmp_path / "median.cu").write_text(MEDIAN)
    held = gather(tmp_path, licences=("any",))
    assert [entry.piece.path for entry in held.entries] == ["median.cu"]
    assert [(each.path, each.note) for each in held.left] == [("copy.cu", "bench/fp32/layer_norm.cu")]
    everything = gather(tmp_path, licences=("any",), hold_out=False)
    assert [entry.piece.path for entry in everything.entries] == ["copy.cu", "median.cu"]


def test_few_kernels_of_different_tasks_are_near() -> None:
    """The figures of docs/corpus.md, by which the threshold was chosen."""
    files = [path for kind in ("fp32", "bf16") for path in sorted((resources.bench() / kind).glob("*.cu"))]
    kernels = [
        (path.stem.removesuffix("_bf16"), shingles(kernel))
        for path in files
        for kernel in kernels_of(path.read_text(encoding="utf-8"))
    ]
    pairs = [(one, other) for one, other in itertools.combinations(kernels, 2) if one[0] != other[0]]
    close = sum(jaccard(one[1], other[1]) >= NEAR_COPY for one, other in pairs)
    page = (resources.root() / "docs" / "corpus.md").read_text(encoding="utf-8")
    assert f"{close} of the {len(pairs)} pairs of different tasks" in " ".join(page.split())


def test_own_sources_can_be_cut_and_are_under_our_licence() -> None:
    """Of the baselines each is one piece that holds the whole of its kernels."""
    files, _ = find(resources.bench() / "fp32")
    assert len(files) == 50
    for source in files[::7]:
        pieces, left = cut(source)
        assert left == []
        assert sum(piece.code.count("__global__") for piece in pieces) == source.text.count("__global__")
        assert allowed(Licences(resources.bench() / "fp32").of(source.path, ()).name, PERMISSIVE)
