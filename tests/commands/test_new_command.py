"""`new`: a task out of a user's file, by what the reader sees in a dozen small ones, and one all the way."""

from __future__ import annotations

import json
import os
import pty
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_line import run

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision
from cudamaster.devices.choose import choose
from cudamaster.making import (
    baseline,
    drawn_cases,
    flattening,
    kept_work,
    reading,
    roles,
    task_files,
    understanding,
    wishes,
)
from cudamaster.making.adapter import adapter
from cudamaster.tasks import cards, harness
from cudamaster.tasks.harness import baseline_region

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_kernel"
LENGTHS = [
    "--length",
    "x=[rows, width]",
    "--length",
    "bias=width",
    "--length",
    "y=rows*width",
    "--length",
    "largest=rows",
]
KERNEL = (
    "__global__ void k(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }\n"
)
LAUNCH = "k<<<1, 32>>>(x, y, n);"
PLAIN = f"void f(const float* x, float* y, int n) {{ {LAUNCH} }}\n"


def read(folder: Path, text: str, name: str = "my.cu") -> reading.Source:
    """A file as the command reads it."""
    (folder / name).write_text(text)
    return reading.read(flattening.flatten(folder / name), choose("cpu").preprocessor().compiler)


def new(file: Path, folder: Path | None, *options: str) -> Result:
    """`cudamaster new` in this process, without a GPU."""
    into = [] if folder is None else ["--into", str(folder)]
    return CliRunner().invoke(main, ["new", str(file), "--device", "cpu", *into, *options])


def understood(source: reading.Source, **said: object) -> understanding.Understood:
    wrapper = reading.choose_wrapper(source, None)
    wanted = wishes.Wishes(**said)  # type: ignore[arg-type]
    return understanding.understand(source, wrapper, reading.parameters(source, wrapper), wanted)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (KERNEL, "has the kernel k, and no host function"),
        (KERNEL + PLAIN + PLAIN.replace(" f(", " g("), r"2 functions that launch kernels: f, g\. .*--wrapper f"),
        (KERNEL + PLAIN + f"void f(float* x, float* y) {{ int n = 1; {LAUNCH} }}", "2 functions f .overloads."),
        (KERNEL + "template <class T> " + PLAIN, "line 2: f is a template"),
        (KERNEL + f"struct S {{ {PLAIN} }};", "f lies in S"),
        (KERNEL + f"namespace mine {{\n{PLAIN} }}", "line 3: f lies in mine"),
        (KERNEL + PLAIN.replace("void", "cudaError_t"), "f returns cudaError_t. Make it void"),
        (KERNEL + PLAIN.replace("int n", "const int& n"), "n is a reference"),
        (KERNEL + PLAIN.replace("float* y", "float** y"), "y is a pointer to pointers"),
        (KERNEL + "struct P { int n; };\n" + PLAIN.replace("int n", "P p"), "line 3: p has the type 'P'"),
        (KERNEL + PLAIN.replace("int n", "int n, void (*done)(int)"), "done is a function"),
        (KERNEL + PLAIN.replace("k<<<", "cudaMemcpy(y, x, n, cudaMemcpyHostToDevice); k<<<"), "copies between host"),
        (KERNEL + "int main() {}\n", "no host function with pointers"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_task_is_refused_with_the_line_and_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        understood(read(tmp_path, text))


def test_long_long_has_many_names(tmp_path: Path) -> None:
    names = ["long long a", "const int64_t* b", "long* c", "int64_t d", "std::size_t e", "long unsigned f"]
    source = read(
        tmp_path, f"__global__ void k(long* c) {{ c[0] = 1; }}\nvoid f({', '.join(names)}) {{ k<<<1, 1>>>(c); }}"
    )
    passed = reading.parameters(source, reading.choose_wrapper(source, None))
    assert [p.c_type for p in passed] == ["long long", "const long long*", "long long*", "long long", *2 * ["size_t"]]


def test_a_macro_or_a_branch_that_is_not_taken_hides_nothing(tmp_path: Path) -> None:
    source = read(
        tmp_path,
        "#define REAL __half\n#define LAUNCH(...) k<<<1, 32>>>(__VA_ARGS__)\n#include <cuda_fp16.h>\n"
        "typedef unsigned int count_t;\n"
        "__global__ void k(const REAL* x, REAL* y, count_t n) { y[0] = x[n]; }\n"
        "#if 0\nvoid other(float* y) { k<<<1, 1>>>(y, y, 1); }\n#endif\n"
        "extern \"C\" void f(const REAL x[], REAL* y, count_t n) { LAUNCH(x, y, n); }\n",
    )  # fmt: skip
    task = understood(source)
    assert (task.wrapper, task.precision) == ("f", Precision.FP16)
    assert [(row.type, row.role, row.length) for row in task.rows] == [
        ("T", "input", "n"), ("T", "output", "1"), ("unsigned int", "scalar", None),
    ]  # fmt: skip


ROLES = """
__device__ void add(float* to, float v) { atomicAdd(to, v); }
__device__ float first(const float* p) { return __ldg(p); }
__global__ void one(float* a, float* b, float* c, float* d, float* e, float* g, float* h, int n) {
    float4* wide = reinterpret_cast<float4*>(a);
    wide[threadIdx.x].x = first(b);
    for (int i = 0; i < n; ++i) c[i] += b[i + 1];
    add(&d[0], e[0]);
    unknown(g);
    if (h != nullptr) h[0] = 1;
}
__global__ void two(float* a, float* e, int n) { a[n] /= 2; *e = 0; }
void f(float* a, float* b, float* c, float* d, float* e, float* g, float* h, int n) {
    cudaMemsetAsync(d, 0, sizeof(float));
    one<<<1, n>>>(a, b, c, d, e, g, h, n);
    two<<<1, n>>>(a, e, n);
}
"""


def test_roles_are_told_from_what_kernels_do_with_a_pointer(tmp_path: Path) -> None:
    """Through casts, calls, atomics and several launches; a role that the text does not show is in-out."""
    source = read(tmp_path, ROLES)
    wrapper = reading.choose_wrapper(source, None)
    told = {name: roles.role(roles.uses(source, wrapper, name))[0] for name in "abcdegh"}
    assert told == {"a": "output", "b": "input", "c": "inout", "d": "output", "e": "inout", "g": "inout", "h": "output"}
    assert {row.name for row in understood(source).rows if row.length == "1"} == {"d", "e", "h"}


def test_scratch_memory_is_asked_for_by_its_name(tmp_path: Path) -> None:
    """A pointer that is written, then read, may be an output all the same; the name says when to ask."""
    text = (
        "__global__ void k(const float* x, float* t, int n) { t[threadIdx.x] = x[threadIdx.x]; }\n"
        "__global__ void l(const float* t, float* y, int n) { y[0] = t[0] + t[n - 1]; }\n"
        "void f(const float* x, float* NAME, float* y, int n) { k<<<1, 32>>>(x, NAME, n); l<<<1, 1>>>(NAME, y, n); }\n"
    )
    assert [row.role for row in understood(read(tmp_path, text.replace("NAME", "hidden"))).rows][1] == "output"
    source = read(tmp_path, text.replace("NAME", "workspace"))
    assert [question.example for question in understood(source).questions] == [
        "--scratch workspace",
        "--case n=1048576",
    ]
    told = understood(source, scratch=("workspace",), lengths={"workspace": "n // 2"})
    assert ([row.role for row in told.rows], told.weight) == (["input", "scratch", "output", "scalar"], "n + 1")
    made = new(tmp_path / "my.cu", tmp_path, "--scratch", "workspace", "--case", "n=32", "--truth", "c")
    assert made.exit_code == 0, made.output
    assert "const T* x, mskb::Expected& y, int n" in (tmp_path / "reference/f.h").read_text()
    assert cards.load(str(tmp_path / "tasks/f.yaml")).parameters[1].role == "scratch"


def test_a_question_has_a_guess_that_works(tmp_path: Path) -> None:
    source = read(
        tmp_path,
        "__global__ void k(const int* i, float* y, int n, int c, float a) { y[n] = i[c]; }\n"
        "void f(const int* i, float* y, int n, int c, float a) { k<<<1, 1>>>(i, y, n, c, a); }\n",
    )
    task = understood(source)
    assert [question.example for question in task.questions] == [
        "--length i=n*c", "--range i=0:min(n, c)-1", "--length y=n*c", "--range a=0.5:2", "--case n=1024,c=1024",
    ]  # fmt: skip
    answered = understood(source, lengths={"i": "n", "y": "[n, c]"}, ranges={"i": "ints:0:c-1", "a": "0:1"},
                          cases=({"n": 64, "c": 32},), multiples={"c": 16}, fixed=("n",))  # fmt: skip
    assert answered.questions == ()
    assert answered.rows[1].shape == ("n", "c")
    assert {case["n"] for case in drawn_cases.check_cases(answered)} == {64}
    assert all(case["c"] % 16 == 0 for case in drawn_cases.check_cases(answered))
    assert drawn_cases.held_out(answered) == ({"c": {"multiple_of": [16, 16, 30_000]}, "a": [0.0, 1.0]},)
    for wrong in (
        {"outputs": ("i",)},
        {"lengths": {"i": "a"}},
        {"cases": ({"n": 64},)},
        {"fixed": ("m",)},
        {"cases": ({"n": 0, "c": 8},)},
    ):
        with pytest.raises(UsageError):
            understood(source, **wrong)


def test_the_function_to_paste_fits_the_kernel(tmp_path: Path) -> None:
    """Two dimensions get a grid of two, and a template's types are replaced."""
    body = "int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y; y[r * w + c] = x[h];"
    text = f"namespace a {{ template <class T, int B> __global__ void k(const T* x, T* y, int w, int h) {{ {body} }} }}"
    source = read(tmp_path, text)
    pasted = adapter(source, source.functions[0])
    assert "void launch_k(const float* x, float* y, int w, int h) {\n    dim3 threads(16, 16);" in pasted
    assert "a::k<float, /* B */><<<blocks, threads>>>(x, y, w, h);" in pasted
    assert "k is a template" in pasted


def test_guesses_fit_the_kernel(tmp_path: Path) -> None:
    """A square matrix of one size, bytes, a small epsilon; a function is found by the last part of its name."""
    source = read(
        tmp_path,
        "namespace a { __global__ void k(const unsigned char* i, float* y, int w, float e) {\n"
        "int r = blockIdx.x * blockDim.x + threadIdx.x; y[r * w + threadIdx.y] = i[r] + e; } }\n"
        "void f(const unsigned char* i, float* y, int side, float eps) { a::k<<<1, 1>>>(i, y, side, eps); }\n",
    )
    task = understood(source)
    assert [question.example for question in task.questions] == [
        "--range i=0:255", "--length y=side*side", "--range eps=1e-6:1e-4", "--case side=1024",
    ]  # fmt: skip
    assert task.rows[1].role == "output"


def test_the_baseline_is_one_text_of_what_the_wrapper_needs(tmp_path: Path) -> None:
    """Headers once and in place, `extern "C"`, nothing of main's; lines know the file that they are of."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.h").write_text(
        '#ifndef _A\n#define _A\n#include "b.h"\n__device__ int a() { return b(); }\n#endif\n'
    )
    (tmp_path / "sub/b.h").write_text(
        '#pragma once\n#include "a.h"\n__device__ int b() { return 1; }\nvoid f(int* y, int n);\n'
    )
    source = read(
        tmp_path,
        '#include "sub/a.h"\n#include "sub/b.h"\n#include <iostream>\n#include <cstdio>\n'
        "inline void check(cudaError_t e, int line) {\n  if (e != cudaSuccess) {\n    printf(\"%d\", line);\n"
        "    exit(1);\n  }\n}\n"
        "#define CHECK(x) check((x), __LINE__)\n"
        "__global__ void k(int* y, int n) { y[threadIdx.x] = a(); }\n"
        "static inline void\nf(int* y, int n) {\n    k<<<1, n>>>(y, n);\n    CHECK(cudaGetLastError());\n}\n"
        "__global__ void unused() {}\n// Only for main.\nvoid show(int* y) { std::cout << y[0]; }\n"
        "int main() {\n    int* y;\n    f(y, 1);\n    show(y);\n}\n",
    )  # fmt: skip
    made = baseline.assemble(source, reading.choose_wrapper(source, None))
    assert made.flat.text.replace("\n\n", "\n") == (
        "__device__ int b() { return 1; }\n__device__ int a() { return b(); }\n#include <cstdio>\n"
        "inline void check(cudaError_t e, int line) {}\n#define CHECK(x) check((x), __LINE__)\n"
        "__global__ void k(int* y, int n) { y[threadIdx.x] = a(); }\n"
        'extern "C" void f(int* y, int n) {\n    k<<<1, n>>>(y, n);\n    CHECK(cudaGetLastError());\n}'
    )
    assert made.left_out == ("unused", "show", "main")
    line = made.flat.text.split("\n").index("__device__ int b() { return 1; }")
    assert made.flat.place(line + 1) == "b.h, line 3"
    assert task_files.name_of("fusedBiasGELU") == "fused_bias_gelu"


def test_a_variable_that_a_function_of_main_fills_is_not_left_empty(tmp_path: Path) -> None:
    source = read(
        tmp_path,
        "__constant__ float weights[4];\n"
        "__global__ void k(const float* x, float* y, int n) { y[threadIdx.x] = weights[n] * x[n]; }\n"
        f"{PLAIN}"
        "void setUp(const float* w) { cudaMemcpyToSymbol(weights, w, 16); }\n"
        "int main() { float w[4]; setUp(w); }\n",
    )
    with pytest.raises(UsageError, match="line 4: setUp fills weights on the device, and f does not call it"):
        baseline.assemble(source, reading.choose_wrapper(source, None))


SAYS = 'if (e != cudaSuccess) { fprintf(stderr, "%s", cudaGetErrorString(e)); exit(1); }'


@pytest.mark.parametrize(
    ("macro", "body"),
    [
        (f"C(call) do {{ cudaError_t e = (call); {SAYS} }} while (0)", "((void)(call))"),
        (f"C(...) {{ const cudaError_t e = __VA_ARGS__; {SAYS} }}", "((void)(__VA_ARGS__))"),
        ('C(what, call) if ((call) != cudaSuccess) { printf("%s", what); abort(); }', "((void)(call))"),
        ("C(x) ((x) == cudaSuccess ? (void)0 : (void)(puts(#x), exit(1)))", "((void)(x))"),
        ("C(x) assert(cudaSuccess == (x))", "((void)(x))"),
        (f"C(text) {{ auto e = cudaGetLastError(); {SAYS} puts(text); }}", "((void)0)"),
        (f"C() {{ cudaDeviceSynchronize(); auto e = cudaGetLastError(); {SAYS} }}",
         "{ cudaDeviceSynchronize(); auto e = cudaGetLastError(); if (e != cudaSuccess) { } }"),
        (f"C(x) ({{ auto e = (x); {SAYS} e; }})", "({ auto e = (x); if (e != cudaSuccess) { } e; })"),
        ("C(a, b) { auto e = (a); e = (b); if (e != cudaSuccess) exit(1); }",
         "{ auto e = (a); e = (b); if (e != cudaSuccess) ; }"),
        (f"C(x) [&] {{ auto e = (x); {SAYS} }}()", None),
    ],
)  # fmt: skip
def test_a_macro_that_checks_errors_keeps_its_work(tmp_path: Path, macro: str, body: str | None) -> None:
    source = read(tmp_path, f"#define {macro}\n{KERNEL}{PLAIN}")
    wrapper = reading.choose_wrapper(source, None)
    if body is None:
        with pytest.raises(UsageError, match="line 1: what C does beside"):
            baseline.assemble(source, wrapper)
        return
    head = macro.partition(")")[0]
    assert baseline.assemble(source, wrapper).lines[0].text == f"#define {head}) {body}"


def test_a_function_that_checks_errors_keeps_its_work(tmp_path: Path) -> None:
    zero = "static void zero(float* p, size_t n) {{\n    cudaError_t e = cudaMemsetAsync(p, 0, n);\n    {}\n}}\n"
    debug = "cudaError_t check(cudaError_t e) {{\n#ifdef DEBUG\n{}#endif\n    return e;\n}}\n"
    source = read(
        tmp_path,
        KERNEL
        + debug.format(f"    {SAYS}\n    assert(e == 0);\n")
        + zero.format(SAYS)
        + PLAIN.replace("{ k", "{ zero(y, n); check(cudaGetLastError()); k"),
    )
    made = baseline.assemble(source, reading.choose_wrapper(source, None))
    assert zero.format("if (e != cudaSuccess) { }") in made.flat.text
    assert debug.format("    if (e != cudaSuccess) { }\n") in made.flat.text
    assert made.changes[-1].startswith("check and zero no longer print or exit")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("zero(y, n); ", "", "line 4: f would lose its call of zero"),
        ("k<<<1, 32>>>(x, y, n); }", "}", "line 4: f would lose its launch of k"),
        ("{ cudaMemset(y, 0, n); }", "{}", "line 3: zero would lose its call of cudaMemset"),
        ("cudaGetLastError();", "", None),
    ],
)
def test_a_rewritten_file_that_does_less_is_refused(tmp_path: Path, old: str, new: str, reason: str | None) -> None:
    text = (
        KERNEL + "#define RUN(...) do { __VA_ARGS__; cudaGetLastError(); } while (0)\n"
        "void zero(float* y, int n) { cudaMemset(y, 0, n); }\n"
        f"void f(const float* x, float* y, int n) {{ zero(y, n); RUN({LAUNCH[:-1]}); {LAUNCH} }}\n"
    )
    assert old in text
    compiler = choose("cpu").preprocessor().compiler
    (tmp_path / "less.cu").write_text(text.replace(old, new, 1))
    less = flattening.flatten(tmp_path / "less.cu")
    if reason is None:
        kept_work.must_keep_work(read(tmp_path, text), "f", less, compiler)
        return
    with pytest.raises(UsageError, match=reason):
        kept_work.must_keep_work(read(tmp_path, text), "f", less, compiler)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('printf("hi");', "my.cu, line 4: printf writes"),
        ("static int calls; ++calls;", "my.cu, line 4: .*calls"),
        ("cudaDeviceReset();", "my.cu, line 4: cudaDeviceReset"),
    ],
)
def test_a_baseline_that_no_candidate_may_be_is_refused_where_it_was_written(
    tmp_path: Path, line: str, reason: str
) -> None:
    text = f"#include <chrono>\n{KERNEL}{PLAIN.replace(LAUNCH, f'{chr(10)}    {line} {LAUNCH}')}"
    (tmp_path / "my.cu").write_text(text)
    done = new(tmp_path / "my.cu", tmp_path / "t", "--json")
    assert done.exit_code == 2
    assert re.search(reason, json.loads(done.stdout)["error"]["reason"])
    assert not (tmp_path / "t").exists()


def test_parameters_may_have_names_that_mean_something_to_us(tmp_path: Path) -> None:
    """Words of Python, and names that the harness uses: `c`, `T`, `sizes`."""
    (tmp_path / "my.cu").write_text(
        "__global__ void k(const float* in, float* c, int T, float lambda) { c[T - 1] = lambda * in[0]; }\n"
        "void f(const float* in, float* c, int T, float lambda) { k<<<1, 1>>>(in, c, T, lambda); }\n"
    )
    made = new(tmp_path / "my.cu", tmp_path, "--range", "lambda=0:1", "--length", "in=T + 1", "--case", "T=64")
    assert made.exit_code == 0, made.output
    card = cards.load(str(tmp_path / "tasks/f.yaml"))
    assert card.inputs == ("uniform(in, -1, 1)",)
    text = harness.render(card, Precision.FP32)
    assert "mskb::uniform(inputs, Buffer::in, -1, 1)" in text
    by = choose("cpu").preprocessor()
    folders = [f"-I{folder}" for folder in (*by.folders, resources.bench() / "include")]
    command = [by.compiler, "-std=c++17", "-DMSKB_JUDGE", "-fsyntax-only", *folders, "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_named_at_once_and_the_command_line_shown_works(tmp_path: Path) -> None:
    command = ["new", str(EXAMPLE / "bias_gelu.cu"), "--into", str(tmp_path), "--device", "cpu"]
    done = run(*command)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    shown = done.stderr.strip().partition("guesses to correct: ")[2]
    done = subprocess.run(shown, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert cards.load(str(tmp_path / "tasks/bias_gelu.yaml")).wrapper(Precision.FP32) == "biasGelu"


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    """Return takes the guess; an answer that makes no sense is asked again."""
    (tmp_path / "my.cu").write_text(KERNEL.replace("float*", "int*") + PLAIN.replace("float*", "int*"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cudamaster", "new", str(tmp_path / "my.cu"), "--into", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--device", "cpu"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(ours, b"nonsense\n0:9\nn=64; n=100\n")
    out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert b"no range" in err
    card = cards.load(str(tmp_path / "tasks/f.yaml"))
    assert card.inputs == ("integers(x, 0, 9)",)
    assert [case.label for case in card.cases if case.sweep] == ["n=64", "n=100"]
    assert b"Wrote" in out


@pytest.mark.parametrize(("truth", "ending"), [("c", "h"), ("python", "py")])
def test_a_reference_fails_until_it_is_written(tmp_path: Path, truth: str, ending: str) -> None:
    made = new(EXAMPLE / "bias_gelu.cu", tmp_path, *LENGTHS, "--case", "rows=4,width=8", "--truth", truth)
    reference = tmp_path / f"reference/bias_gelu.{ending}"
    assert f"First write {reference}" in made.output
    if truth == "python":
        with pytest.raises(NotImplementedError, match="not written yet"):
            runpy.run_path(str(reference))["reference"](x=None, bias=None, rows=4, width=8)
        return
    asked = f'#include "{reference}"\ntemplate void bias_gelu_reference(const float*, const float*, mskb::Expected&, '
    (tmp_path / "asked.cpp").write_text(f"{asked}mskb::Expected&, int, int);\n")
    by = choose("cpu").preprocessor()
    folders = [f"-I{folder}" for folder in (*by.folders, resources.bench() / "include")]
    command = [by.compiler, "-std=c++17", "-fsyntax-only", *folders, str(tmp_path / "asked.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "reference/bias_gelu.h is not written yet" in done.stderr
    assert done.stderr.count("error:") == 1


def test_from_a_file_to_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels, a header, a main and a stream: baseline and a faster kernel pass, a wrong one does not."""
    cases = ("--case", "rows=8,width=64", "--case", "rows=16,width=96")
    monkeypatch.setenv(resources.TASKS, str(tmp_path / "not_there_yet"))
    told = json.loads(new(EXAMPLE / "bias_gelu.cu", None, *LENGTHS, *cases, "--json").stdout)
    assert (told["task"], told["left_out"]) == ("bias_gelu", ["main"])
    assert "is there already" in new(EXAMPLE / "bias_gelu.cu", None, *LENGTHS, *cases).output
    card = cards.load("bias_gelu")
    assert str(card.baseline_path(Precision.FP32)) in told["files"]
    faster = (EXAMPLE / "faster.cu").read_text()
    kernels = {
        "same": baseline_region(card, Precision.FP32),
        "faster": faster,
        "wrong": faster.replace(" + bias[k]", ""),
    }
    for name, text in kernels.items():
        (tmp_path / f"{name}.cu").write_text(text)
        kernel = str(tmp_path / f"{name}.cu")
        done = CliRunner().invoke(main, ["evaluate", card.name, kernel, "--device", "cpu", "--check-only", "--json"])
        assert json.loads(done.stdout)["status"] == ("wrong" if name == "wrong" else "correct"), done.stdout
