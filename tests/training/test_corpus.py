"""`cudamaster train corpus`: pieces that stand by themselves, licences, what is left out, replies that are kept."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chat_servers import SECRET, ChatServer

from cudamaster.core import resources
from cudamaster.core.errors import BudgetSpent, ModelError, RunFolderError, UsageError
from cudamaster.core.values import Role
from cudamaster.models.protocol import AnsweredBy, Reply, Request, Usage
from cudamaster.runs.budget import Limits
from cudamaster.training.corpus import folder as corpus_folder
from cudamaster.training.corpus.comments import comments_of
from cudamaster.training.corpus.cutting import cut
from cudamaster.training.corpus.gathering import gather
from cudamaster.training.corpus.held_out import kernels_of
from cudamaster.training.corpus.licences import PERMISSIVE, Licences, allowed, names_in
from cudamaster.training.corpus.making import Asked, Wanted, make
from cudamaster.training.corpus.masking import masked
from cudamaster.training.corpus.sources import SourceFile, find
from cudamaster.training.shingles import NEAR_COPY, jaccard, shingles

MIT = """MIT License

Copyright (c) 2021 Ada Example <ada@example.org>

Permission is hereby granted, free of charge, to any person obtaining a copy of this software, to deal in it.
"""
GPL_HEAD = """/* Copyright (C) 2019 Grace Example
 * This program is free software; you can redistribute it and/or modify it under the terms of the
 * GNU General Public License as published by the Free Software Foundation; either version 3 of the
 * License, or (at your option) any later version. */
"""
# Two kernels that share a launcher, one that is alone, what they need, and what nobody needs.
HISTOGRAM = """// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2020 The Histogram Authors

#include <cuda_runtime.h>
#include "bins.h"

#define UNUSED_LIMIT 12
#define CHECK(call) check_status((call), __FILE__, __LINE__)
#ifdef WIDE_BINS
#define BINS 1024
#else
#define BINS 256
#endif

namespace counting {
namespace {

constexpr int kThreads = 128; // of a block
constexpr int kNobody = 5;

void check_status(cudaError_t status, const char* file, int line) {
    if (status != cudaSuccess) throw file;
}

// The bin of a value.
__device__ __forceinline__ int bin_of(float value) {
    return min(max(static_cast<int>(value * BINS), 0), BINS - 1);
}

__device__ int nobody_calls_this(int value) { return value + kNobody; }

} // namespace

// Counts in shared memory first.
template <int kPerThread>
__global__ void __launch_bounds__(kThreads) count_kernel(const float* values, unsigned* bins, int n) {
    __shared__ unsigned local[BINS];
    for (int i = threadIdx.x; i < BINS; i += kThreads) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
        atomicAdd(&local[bin_of(values[i])], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += kThreads) atomicAdd(&bins[i], local[i]);
}

__global__ void clear_kernel(unsigned* bins) { bins[blockIdx.x * blockDim.x + threadIdx.x] = 0; }

void histogram(const float* values, unsigned* bins, int n) {
    clear_kernel<<<BINS / kThreads, kThreads>>>(bins);
    count_kernel<4><<<132, kThreads>>>(values, bins, n);
    CHECK(cudaGetLastError());
}

__global__ void alone_kernel(float* x) { x[threadIdx.x] *= 2.0f; }

} // namespace counting
"""


def kernel(name: str, body: str, head: str = "") -> str:
    return f"""{head}#include <cuda_runtime.h>
// Does {name}.
__global__ void {name}_kernel(float* out, const float* in, int n) {{
    extern __shared__ float staged[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{body}
}}
void {name}(float* out, const float* in, int n) {{ {name}_kernel<<<(n + 255) / 256, 256, 1024>>>(out, in, n); }}
"""


SCAN = kernel(
    "scan",
    """    float sum = i < n ? in[i] : 0.0f;
    for (int step = 1; step < 32; step *= 2) {
        float other = __shfl_up_sync(0xffffffffu, sum, step);
        if ((threadIdx.x & 31) >= step) sum += other;
    }
    if ((threadIdx.x & 31) == 31) staged[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (i < n) out[i] = sum + (threadIdx.x >> 5 ? staged[(threadIdx.x >> 5) - 1] : 0.0f);""",
)
MEDIAN = kernel(
    "median",
    """    while (i < n) {
        float a = in[max(i - 1, 0)], b = in[i], c = in[min(i + 1, n - 1)];
        out[i] = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
        i += gridDim.x * blockDim.x;
    }""",
)
# As MEDIAN with other names and numbers.
MEDIAN_AGAIN = (
    MEDIAN.replace("median", "middle").replace("256", "512").replace("b =", "centre =").replace(", b", ", centre")
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with code under several licences, copies, secrets, and files that are none."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "LICENSE").write_text(MIT)
    (folder / "histogram.cu").write_text(HISTOGRAM)
    (folder / "scan.cu").write_text(SCAN)
    (folder / "a_median.cu").write_text(
        MEDIAN + '// tell ada@example.org\nstatic const char* api_key = "abcdef123456";\n'
    )
    (folder / "b_middle.cu").write_text(MEDIAN_AGAIN)
    (folder / "gpl.cu").write_text(kernel("theirs", "    if (i < n) out[i] = in[n - 1 - i] / (1 + in[i]);", GPL_HEAD))
    (folder / "third_party").mkdir()
    (folder / "third_party" / "scan.cuh").write_text(SCAN.replace("\n", "\n\n"))
    (folder / "latin1.cu").write_bytes(SCAN.encode() + b"// caf\xe9\n")
    (folder / "made.cu").write_text("// Automatically generated by a tool\n" + SCAN)
    (folder / "table.cuh").write_text(f"__device__ int table[] = {{{'1, ' * 600}}};\n")
    (folder / "host.cpp").write_text("int main() { return 0; }\n")
    (folder / "broken.cu").write_text("__global__ void half(float* x) { if (x[0] > 1) { x[1] = ; ;\n")
    (folder / "loop").symlink_to(folder)
    return folder


def reply_for(code: str, worth: str = "yes") -> str:
    name = re.findall(r"(\w+)_kernel|(nobody)", code)[0][0] or "nobody"
    instruction = "" if worth == "no" else f"Write a CUDA kernel that does {name} over shared memory and warps."
    return json.dumps({"worth_learning": worth, "reason": f"It is {name}.", "instruction": instruction})


def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
    assert role is Role.DESCRIBER
    code = messages[1]["content"]
    return 200, reply_for(code, "no" if re.search("alone_kernel|nobody", code) else "yes")


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", "train", "corpus", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "OPENAI_API_KEY": SECRET, **environment},
    )  # fmt: skip


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / corpus_folder.ROWS).read_text().splitlines()]


def why_left(out: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (out / corpus_folder.LEFT_OUT).read_text().splitlines():
        each = json.loads(line)
        found.setdefault(each["why"], []).append(each["path"])
    return found


class Made(NamedTuple):
    """A corpus, its numbers, how often a model was asked for it, and how the model is named in its replies."""

    out: Path
    numbers: dict[str, Any]
    asked: int
    identity: str


@pytest.fixture(scope="module")
def made(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A corpus that the command made with a server."""
    out = tmp_path_factory.mktemp("made") / "out"
    docs = tmp_path_factory.mktemp("docs")
    (docs / "guide.md").write_text(
        "# Warps\n\nShuffles move values between the lanes of a warp, so a scan needs no shared memory for them.\n\n"
        f"# How it is done\n\n    {SCAN}\n# Cooking\n\n"
        + "Rice is rinsed until the water stays clear, then it rests for half an hour. " * 3
        + "\n"
    )
    with ChatServer(answer) as server:
        done = command(str(sources), "--out", str(out), "--model", "openai/x", "--base-url", server.url, "-j", "3",
                       "--docs", str(docs), "--no-tasks-held-out", "--passages", "1", "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        return Made(out, json.loads(done.stdout), len(server.asked), f"openai/x|{server.url}|None|None")


def test_rows_have_the_three_and_their_licence(made: Made, sources: Path) -> None:
    out, numbers, asked, _ = made
    rows = {row["provenance"]["path"]: row for row in rows_of(out)}
    assert set(rows) == {"histogram.cu", "scan.cu", "a_median.cu"}
    scan = rows["scan.cu"]
    assert scan["licence"] == "MIT"
    assert scan["instruction"].startswith("Write a CUDA kernel that does scan")
    assert scan["provenance"]["licence_text"] == "LICENSE"
    assert scan["provenance"]["copyright"] == ["Copyright (c) 2021 Ada Example <<EMAIL>>"]
    assert scan["provenance"]["model"] == "openai/x"
    lines = SCAN.splitlines()
    taken = [lines[at - 1] for first, last in scan["provenance"]["lines"] for at in range(first, last + 1)]
    assert [line for line in scan["code"].splitlines() if line] == [line for line in taken if line]
    assert scan["text"] == f"# Instruction\n\n{scan['instruction']}\n\n# Context\n\n{scan['context']}\n\n" + (
        f"# Code\n\n```cuda\n{scan['code'].rstrip()}\n```\n"
    )
    theirs = rows["histogram.cu"]
    assert theirs["licence"] == "BSD-3-Clause"
    assert theirs["provenance"]["copyright"] == ["Copyright 2020 The Histogram Authors"]
    assert theirs["provenance"]["licence_text"] == "histogram.cu:1-2"
    assert "Copyright" not in theirs["code"]
    assert "SPDX" not in theirs["code"]
    assert numbers["by_licence"] == {"MIT": 2, "BSD-3-Clause": 1}
    assert numbers["rows"] == 3
    assert numbers["calls"] == numbers["calls_now"] == asked == 5  # two pieces that are not worth it among them


def test_what_is_left_out_is_counted_and_listed(made: Made) -> None:
    out, numbers, *_ = made
    left = why_left(out)
    assert {why: len(paths) for why, paths in left.items()} == numbers["left_out"]
    assert left["licence is not allowed"] == ["gpl.cu"]
    assert numbers["licences_left_out"] == {"GPL-3.0-or-later": 1}
    assert left["near copy of another piece"] == ["b_middle.cu"]
    assert left["copy of another file"] == ["third_party/scan.cuh"]
    assert left["not worth learning from"] == ["histogram.cu", "histogram.cu"]
    assert left["not UTF-8"] == ["latin1.cu"]
    assert left["generated"] == ["made.cu"]
    assert left["a line of more than 1000 characters"] == ["table.cuh"]
    assert left["no CUDA in it"] == ["host.cpp"]
    assert left["does not parse"] == ["broken.cu"]
    assert "theirs_kernel" not in (out / corpus_folder.ROWS).read_text()


def test_secrets_are_masked_and_notices_kept_whole(made: Made) -> None:
    out, numbers, *_ = made
    assert numbers["secrets_masked"] == 2
    everything = (out / corpus_folder.ROWS).read_text()
    assert "abcdef123456" not in everything
    assert "ada@example.org" not in everything
    told = (out / corpus_folder.NOTICE).read_text()
    assert told.count("Permission is hereby granted") == 1
    assert "Copyright (c) 2021 Ada Example <ada@example.org>" in told
    assert "  a_median.cu\n  scan.cu\n" in told
    assert "gpl.cu" not in told


def test_context_is_what_fits_and_never_the_piece_itself(made: Made) -> None:
    rows = {row["provenance"]["path"]: row for row in rows_of(made[0])}
    found = rows["scan.cu"]["provenance"]["context"]
    assert [each["kind"] for each in found] == ["documentation", "code"]
    assert "Shuffles move values" in rows["scan.cu"]["context"]
    assert "__shfl_up_sync" not in rows["scan.cu"]["context"]  # the guide shows the kernel itself
    assert "Rice" not in rows["scan.cu"]["context"]
    for path, row in rows.items():
        assert all(each["path"] != path for each in row["provenance"]["context"])
        assert row["code"].strip() not in row["context"]
        assert all(each["licence"] for each in row["provenance"]["context"])


def scripted(asked: list[Request]) -> AnsweredBy:
    """A model that answers as the server does, and remembers what it was asked."""

    def hear(request: Request) -> Reply:
        asked.append(request)
        code = request.messages[1].content
        return Reply(answer(request.role, [{}, {"content": code}])[1], "openai/x", Usage(100, 20, 0.01))

    return AnsweredBy("openai/x", hear)


def test_nothing_is_asked_twice(made: Made, sources: Path, tmp_path: Path) -> None:
    """And another licence asks about what it adds alone."""
    out = shutil.copytree(made.out, tmp_path / "out")
    requests: list[Request] = []
    again = Asked(scripted(requests), made.identity, Limits())
    make(Wanted(sources, out, hold_out=False), again)
    assert requests == []
    assert len(rows_of(out)) == 3
    numbers = make(Wanted(sources, out, licences=("any",), hold_out=False), again)
    assert [request.facts["path"] for request in requests] == ["gpl.cu"]
    assert numbers["by_licence"]["GPL-3.0-or-later"] == 1


def test_a_killed_process_goes_on(sources: Path, tmp_path: Path) -> None:
    """kill -9 while calls are open: each reply that arrived is on the disk, and is not asked for again."""
    stop_at, out = 2, tmp_path / "out"
    hold = threading.Event()

    def slowly(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        if len(server.asked) > stop_at:
            hold.wait(20)
        return answer(role, messages)

    script = (
        "import sys; from pathlib import Path; from search_stand_ins import PlainHttpModel\n"
        "from cudamaster.runs.budget import Limits; from cudamaster.training.corpus.making import Asked, Wanted, make\n"
        "made = make(Wanted(Path(sys.argv[1]), Path(sys.argv[2]), hold_out=False),\n"
        "            Asked(PlainHttpModel(sys.argv[3]), 'x', Limits()))\n"
        "print(made['rows'], made['calls'], made['calls_now'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ChatServer(slowly) as server:
        words = [sys.executable, "-c", script, str(sources), str(out), server.url]
        process = subprocess.Popen(words, env=environment)
        until = time.monotonic() + 60
        while len(server.asked) <= stop_at and time.monotonic() < until:
            time.sleep(0.02)
        with pytest.raises(RunFolderError, match="Another process"), corpus_folder.opened(out):
            pass
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        hold.set()
        kept = (out / corpus_folder.REPLIES).read_text()
        assert kept.count("\n") == stop_at
        assert not (out / corpus_folder.ROWS).exists()
        with (out / corpus_folder.REPLIES).open("a") as file:
            file.write('{"key": "0123')  # as if it was killed while it wrote
        before = len(server.asked)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["3", "5", "3"]
        assert len(server.asked) - before == 3
        assert (out / corpus_folder.REPLIES).read_text().startswith(kept)
    assert {row["provenance"]["path"] for row in rows_of(out)} == {"histogram.cu", "scan.cu", "a_median.cu"}


def test_budgets_hold_and_the_rest_goes_on(sources: Path, tmp_path: Path) -> None:
    requests: list[Request] = []
    model, wanted = scripted(requests), Wanted(sources, tmp_path, hold_out=False)
    numbers = make(wanted, Asked(model, "x", Limits(), most_calls=1, jobs=4))
    assert len(requests) == numbers["calls"] == numbers["rows"] == 1
    assert numbers["stopped"] == "The budget of 1 calls is spent: 1."
    assert numbers["left_out"]["not asked: the budget is spent"] == 4
    numbers = make(wanted, Asked(model, "x", Limits(dollars=0.02)))
    assert len(requests) == numbers["calls"] == 2
    assert "dollars" in numbers["stopped"]
    numbers = make(wanted, Asked(model, "x", Limits(dollars=0.06)))
    assert numbers["stopped"] is None
    assert len(requests) == 5
    assert numbers["dollars"] == pytest.approx(0.05)
    with pytest.raises(BudgetSpent, match="larger --max-tokens"):
        make(wanted, Asked(model, "another", Limits(tokens=1)))


def test_replies_that_cannot_be_used_cost_a_piece_and_no_server_ends_it(sources: Path, tmp_path: Path) -> None:
    def hear(request: Request) -> Reply:
        code = request.messages[1].content
        bad = "scan_kernel" in code
        return Reply("I would rather not." if bad else answer(request.role, [{}, {"content": code}])[1], "x", Usage())

    numbers = make(Wanted(sources, tmp_path / "a", hold_out=False), Asked(AnsweredBy("x", hear), "x", Limits()))
    assert numbers["left_out"]["no usable reply"] == 1
    assert numbers["calls"] == 6  # it was asked once more for the one
    assert numbers["rows"] == 2

    def gone(request: Request) -> Reply:
        raise ModelError("It cannot be reached.", "Check the network.")

    with pytest.raises(ModelError, match=r"5 calls in a row had no answer\. It cannot be reached"):
        make(
            Wanted(resources.bench() / "fp32", tmp_path / "b", hold_out=False),
            Asked(AnsweredBy("x", gone), "x", Limits()),
        )


def test_a_damaged_reply_is_named(sources: Path, tmp_path: Path) -> None:
    (tmp_path / corpus_folder.REPLIES).write_text('{"key": "a"}\n')
    with pytest.raises(RunFolderError, match=r"replies\.jsonl:1 is damaged"):
        make(Wanted(sources, tmp_path, hold_out=False), Asked(scripted([]), "x", Limits()))


def test_without_a_model_it_says_what_to_do(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command(str(sources), "--out", str(out), "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)["error"]
    assert "--model" in told["fix"]
    assert "--no-instructions" in told["fix"]
    assert not out.exists()
    done = command(str(sources), "--out", str(out), "--no-instructions")
    assert done.returncode == 0, done.stderr
    assert "licence GPL-3.0-or-later" in done.stdout
    assert {row["instruction"] for row in rows_of(out)} == {""}
    assert len(rows_of(out)) == 5


def test_a_folder_with_other_things_is_left_alone(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="holds no corpus"):
        make(Wanted(sources, tmp_path), None)
    with pytest.raises(UsageError, match="folder with the sources"):
        make(Wanted(sources, sources), None)
    with pytest.raises(UsageError, match="There is no folder"):
        make(Wanted(tmp_path / "nothing", tmp_path / "out"), None)
    with pytest.raises(UsageError, match="There is no documentation"):
        make(Wanted(sources, tmp_path / "out", docs=tmp_path), None)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_folder_of_an_export_or_a_run_is_left_alone(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()  # theirs, as ours is called
    (tmp_path / "README.md").write_text("the card of an export")
    with pytest.raises(UsageError, match="holds no corpus"):
        make(Wanted(sources, tmp_path), None)
    assert (tmp_path / "README.md").read_text() == "the card of an export"
    (tmp_path / "README.md").unlink()
    make(Wanted(sources, tmp_path), None)  # a lock alone is what a kill at the beginning leaves
    assert (tmp_path / "corpus.jsonl").is_file()


def test_a_folder_without_sources_makes_no_corpus_and_leaves_the_last_one(sources: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out", tmp_path / "empty"
    empty.mkdir()
    make(Wanted(sources, out), None)
    before = (out / "corpus.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"holds no file that ends in \.cu"):
        make(Wanted(empty, out), None)
    with pytest.raises(UsageError, match=r"a licence that is allowed \(MTI\): its files' are .*MIT"):
        make(Wanted(sources, out, licences=("MTI",)), None)
    assert (out / "corpus.jsonl").read_bytes() == before


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


def test_datasets_reads_it(made: Made) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(made.out), split="train", cache_dir=str(made.out.parent / "cache"))
    assert loaded.num_rows == made.numbers["rows"]
    assert set(loaded.column_names) == {"instruction", "context", "code", "licence", "provenance", "text"}
    assert [row["text"] for row in loaded] == [row["text"] for row in rows_of(made.out)]
