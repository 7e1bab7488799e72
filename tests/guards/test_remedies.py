"""What a refusal advises is accepted: each has a candidate that it refuses, and one that follows its advice."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import cudamaster.guards
from cudamaster.core import resources
from cudamaster.guards.flags import Flags, parse_command
from cudamaster.guards.names import _FORBIDDEN_GROUPS
from cudamaster.guards.object import check_object
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.source import check_source
from cudamaster.guards.symbols import CUDA_STATE, HOST_SYMBOLS
from cudamaster.guards.text import SIZE_LIMIT, read_region

from .support import SIGNATURE, judge, region
from .test_object import WRAPPER, compile_host

HEAD = str(SIGNATURE)
BUILD = "-c candidate.cu -o candidate.o"
DEEP = "void f() " + "{ " * 300 + "}" * 300

# (what is refused, words of the remedy that the accepted one has or "" where the remedy is to leave it out,
#  what is accepted)
SOURCE: tuple[tuple[str, str, str], ...] = (
    # the wrapper
    ('extern "C" void task(const float* x, float* y, int n) {}', HEAD, HEAD + " {}"),
    ('extern "C" void other(const float* x, float* y, int n) {}', HEAD, HEAD + " {}"),
    (region('extern "C" void helper(int n) {}'), "static", region("static void helper(int n) {}")),
    ("void f() {}", HEAD, HEAD + " {}"),
    ("void task_optimized(const float* x, float* y, int n) {}", HEAD, HEAD + " {}"),
    (HEAD + " {}" + HEAD + " {}", HEAD, HEAD + " {}"),
    ('extern "C" { static void task_optimized(const float* x, float* y, int n) {} }', HEAD, HEAD + " {}"),
    (HEAD.replace("void", "__device__ void") + " {}", HEAD, HEAD + " {}"),
    (HEAD.replace("int n", "long n") + " {}", HEAD, HEAD + " {}"),
    (HEAD.replace(", int n", "") + " {}", HEAD, HEAD + " {}"),
    (HEAD.replace("int n", "...") + " {}", HEAD, HEAD + " {}"),
    (HEAD.replace("int n", "auto... n") + " {}", HEAD, HEAD + " {}"),
    (HEAD.replace("void", "int") + " {}", HEAD, HEAD + " {}"),
    (region('extern "Fortran" void f() {}'), HEAD, region()),
    # what the host side would keep
    (region("int calls;"), "__device__", region("__device__ int calls;")),
    (region(body="static int calls = 0;"), "a local variable", region(body="/* a local variable */ int calls = 0;")),
    (region("struct S { static int v; };"), "constexpr", region("struct S { static constexpr int v = 0; };")),
    (region("struct S { mutable int v; };"), "a local variable", region("/* a local variable */ struct S { int v; };")),
    (region("static union { int a; float b; };"), "__device__", region("__device__ int a;")),
    (region("extern int optind;"), "constexpr", region("constexpr int optind = 1;")),
    (region(body="static const int first = n;"), "constexpr", region(body="constexpr int first = 3; (void)first;")),
    (region("__managed__ int calls;"), "__device__", region("__device__ int calls;")),
    (
        region("__global__ void __launch_bounds__([] { static int c; return ++c; }()) f() {}"),
        "constexpr",
        region("constexpr int c = 128; __global__ void __launch_bounds__(c) f() {}"),
    ),
    (
        region("__device__ int calls;", "if (calls++) return;"),
        "cudaGetSymbolAddress",
        region("__device__ int calls;", "void* p; cudaGetSymbolAddress(&p, calls);"),
    ),
    (
        region("__device__ int calls; struct S { int* p = &calls; };"),
        "__device__ functions",
        region("__device__ int calls; /* __device__ functions */ struct S { __device__ int* p() { return &calls; } };"),
    ),
    # text
    (" \n", 'extern "C"', HEAD + " {}"),
    (region("//" + "x" * SIZE_LIMIT), "templates", region("// templates\ntemplate <int N> void f() {}")),
    (region("// \x01"), "tabs", region("// tabs\t")),
    (region("// <<< CANDIDATE REGION"), "", region("//")),
    (region("??=define A 1"), "#", region("#define A 1")),
    (region('#line 1 "other.h"'), "", region()),
    (region(body='const char* s = "a; (void)s;'), "Close", region(body='const char* s = "Close"; (void)s;')),
    (region('const char* const s = R"a(x)\\\na")a";'), "plain string", region('const char* const s = "plain string";')),
    (region("%:define A 1"), "#", region("#define A 1")),
    (region("a b ( ] { calls;"), "constexpr", region("constexpr int calls = 0;")),
    (
        region('void f(); int operator""_km(unsigned long long) = 3 {}'),
        "function",
        region("/* function */ void f() {}"),
    ),
    (region(DEEP), "loops", region("void loops() {}")),
    (
        region("#define A0 int a(int);\n" + "".join(f"#define A{i} {f'A{i - 1} ' * 10}\n" for i in range(1, 7)) + "A6"),
        "loops",
        region("void loops() {}"),
    ),
    (
        region(
            "#define A0 int a(int);\n" + "".join(f"#define A{i} {f'A{i - 1} ' * 10}\n" for i in range(1, 12)) + "A11"
        ),
        "loops",
        region("void loops() {}"),
    ),
    # directives
    (region("#error no"), "", region()),
    (region("#include_next <math.h>"), "#include", region("#include <cmath>")),
    (region('#ident "x"'), "#define", region("#define A")),
    (region("#include <thread>"), "<vector>", region("#include <vector>")),
    (region("#include <cub/cub.cuh>"), "mma", region("#include <mma.h>")),
    (region("#define H <cmath>\n#include H"), "#include <cuda_bf16.h>", region("#include <cuda_bf16.h>")),
    (region("#define const"), "TILE", region("#define TILE")),
    (region("#ifdef __OPTIMIZE__\n#endif"), "__CUDA_ARCH__", region("#ifdef __CUDA_ARCH__\n#endif")),
    (region("#pragma weak malloc"), "unroll", region("#pragma unroll")),
    # names
    (region("namespace mskb {}"), "", region("namespace mine {}")),
    (region("namespace std { struct S {}; }"), "mine", region("namespace mine { struct S {}; }")),
    (region(body='if (getenv("HOME")) return;'), "", region()),
    (region(body="exit(0);"), "Return", region(body="/* Return */ if (n < 0) return;")),
    (region(body='printf("{}");'), "", region()),
    (region(body="srand(3);"), "sizes", region(body="/* sizes */ if (n > 3) return;")),
    (region(body="cudaLaunchHostFunc(0, 0, 0);"), "kernels", region("/* kernels */ __global__ void f() {}")),
    (region(body="cudaDeviceReset();"), "streams", region(body="cudaStream_t streams; cudaStreamCreate(&streams);")),
    (
        region(body="cudaGetDriverEntryPoint(0, 0, 0, 0);"),
        "cuTensorMapEncodeTiled",
        region(body="cuTensorMapEncodeTiled(0, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, 0, 0, 0, 0, 0);"),
    ),
    (region(body="cublasSgemm(0);"), "mma", region("#include <mma.h>")),
    (region(body="__builtin_return_address(0);"), "<<<...>>>", region("// <<<...>>>")),
    (region(body="__builtin_ia32_lddqu((const char*)x);"), "intrinsics", region("// intrinsics")),
    (region("__declspec(thread) int v;"), "__device__", region("__device__ int v;")),
    (region(body="task(x, y, n);"), "kernels of the region", region("// kernels of the region")),
    (region("void* operator new(size_t);"), "cudaMalloc", region(body="void* p; cudaMalloc(&p, n);")),
    (region("int main() { return 0; }"), "", region()),
    (region("static void cudaFree(void* p) {}"), "my_cudaFree", region("static void my_cudaFree(void* p) {}")),
    # attributes, assembly, linkage, kernels
    (region("__attribute__((constructor)) void f() {}"), "noinline", region("__attribute__((noinline)) void f() {}")),
    (region(body='asm volatile("nop");'), "__device__", region('__device__ void f() { asm volatile("nop"); }')),
    (region('extern "C" int write(int, const void*);'), "static", region("static int write(int) { return 0; }")),
    (region("__global__ int calls;"), "__global__ void name(", region("__global__ void name(int n) {}")),
)
# Where there is no compiler to expand macros.
UNEXPANDED = ((region("#define KEEP static"), "", region()),)
BYTES: tuple[tuple[bytes, str, bytes], ...] = (
    (b"\x7fELF\x00", "UTF-8", "// UTF-8 ü".encode()),
    (b"// \xff", "UTF-8", "// UTF-8 ü".encode()),
)
FLAGS: tuple[tuple[str, str, str], ...] = (
    ("", f"{BUILD}", f"nvcc {BUILD}"),
    (f"nvcc -O3 {BUILD} \N{EM DASH}", BUILD, f"nvcc -O3 {BUILD}"),
    (f"nvcc {BUILD}; true", BUILD, f"nvcc {BUILD}"),
    (f"nvcc '{BUILD}", BUILD, f"nvcc {BUILD}"),
    (f"gcc {BUILD}", BUILD, f"nvcc {BUILD}"),
    ("nvcc -c candidate.cu -o out.o", BUILD, f"nvcc {BUILD}"),
    ("nvcc candidate.cu -o candidate.o", BUILD, f"nvcc {BUILD}"),
    ("nvcc -c other.cu -o candidate.o", BUILD, f"nvcc {BUILD}"),
    (f"nvcc -arch=sm_70 {BUILD}", "-arch=sm_90a", f"nvcc -arch=sm_90a {BUILD}"),
    (f"nvcc -code=sm_90 {BUILD}", "-arch=sm_90", f"nvcc -arch=sm_90 {BUILD}"),
    (
        f"nvcc -gencode arch=compute_70,code=sm_70 {BUILD}",
        "-gencode=arch=compute_90,code=sm_90",
        f"nvcc -gencode=arch=compute_90,code=sm_90 {BUILD}",
    ),
    (f"nvcc -arch=sm_80 -arch=sm_90 {BUILD}", "-arch=sm_90", f"nvcc -arch=sm_90 {BUILD}"),
    (f"nvcc -std=c++11 {BUILD}", "c++17", f"nvcc -std=c++17 {BUILD}"),
    (f"nvcc -Dconst= {BUILD}", "-DTILE=32", f"nvcc -DTILE=32 {BUILD}"),
    (f"nvcc -DF=getenv {BUILD}", "-DTILE=32", f"nvcc -DTILE=32 {BUILD}"),
    (f"nvcc -Xptxas -o,x {BUILD}", "-dlcm=ca", f"nvcc -Xptxas -dlcm=ca {BUILD}"),
    (f"nvcc -Xcompiler -fplugin=x {BUILD}", "-Wall", f"nvcc -Xcompiler -Wall {BUILD}"),
    (f"nvcc {BUILD} -Xptxas", "-v", f"nvcc {BUILD} -Xptxas -v"),
    (f"nvcc --keep {BUILD}", "--use_fast_math", f"nvcc --use_fast_math {BUILD}"),
    (f"nvcc -lcublas {BUILD}", "", f"nvcc {BUILD}"),
    (f"nvcc -I/tmp {BUILD}", "", f"nvcc {BUILD}"),
    (f"nvcc -rdc=true {BUILD}", "", f"nvcc {BUILD}"),
)


def assembled(text: str) -> str:
    """A candidate with some assembly at file scope."""
    return f'asm("{text}");{PLAIN}'


PLAIN = WRAPPER + "{ y[0] = n; }"

OBJECT: tuple[tuple[str, str, str], ...] = (
    (assembled('.string \\"_ZN4mskb4\\"'), "", PLAIN),
    (assembled('.section .note.GNU-stack,\\"x\\"\\n.text'), "", PLAIN),
    (assembled('.section .text.x,\\"awx\\"\\nnop\\n.text'), "", PLAIN),
    ('__attribute__((section("mine"))) int v;' + PLAIN, "", PLAIN),
    ("void other() {}", 'extern "C"', PLAIN),
    ('extern "C" __attribute__((weak)) void task_optimized() {}', "", PLAIN),
    (assembled(".comm shared,4,4"), "constexpr", "constexpr int shared = 0;" + PLAIN),
    (
        'extern "C" { void* pick() { return 0; } void chosen() __attribute__((ifunc("pick"))); }' + PLAIN,
        "plain function",
        'extern "C" void chosen() { /* plain function */ }' + PLAIN,
    ),
    (assembled(".globl fixed\\n.set fixed, 4096"), "", PLAIN),
    ("int main() { return 0; }" + PLAIN, "", PLAIN),
    (
        "#include <ctime>\n" + WRAPPER + "{ y[0] = time(0); }",
        "math",
        "#include <math.h>\n" + WRAPPER + "{ *y = cos(n); }",
    ),
    (assembled('.section .init,\\"ax\\"\\nnop\\n.text'), "wrapper", "/* wrapper */" + PLAIN),
    (assembled('.section .init_array,\\"aw\\"\\n.quad 4096\\n.text'), "wrapper", "/* wrapper */" + PLAIN),
    (
        '__attribute__((constructor)) void early() { asm volatile(""); }' + PLAIN,
        "constexpr",
        "constexpr int early = 0;" + PLAIN,
    ),
    ('extern "C" int atexit(void (*)()) noexcept;' + WRAPPER + "{ atexit(0); }", "wrapper", "/* wrapper */" + PLAIN),
    (WRAPPER + "{ static int calls; y[0] = calls++; }", "a local variable", "/* a local variable */" + PLAIN),
)
# Where a remedy has the form of one of these, it tells to leave something out, or to call it otherwise.
LEAVING_OUT = re.compile(
    r"Remove|Drop|Leave|Give only the kernels|Choose a name|Choose names|Correct|Write what it stands for"
)

# Second looks, which no candidate here reaches: an earlier check sees it, or the compiler's output is no object.
UNREACHED = {
    "managed memory outlives the call",
    "the region opens .+",
    "this definition is not understood",
    "the compiler's output is no object file",
    "the object cannot be read: .+",
    ".+ does not lie in code",
    ".+ prints and keeps its settings between calls",  # of tasks with open headers: tests/test_hgemm_tasks.py
}


def of_object(code: str, folder: Path) -> Refusal | None:
    allowed = HOST_SYMBOLS | ({"atexit"} if "atexit" in code else set())  # as nvcc's objects may name it
    return check_object(compile_host(folder, code), "task_optimized", allowed, state=CUDA_STATE)


def of_flags(command: str) -> Refusal | None:
    parsed = parse_command(command)
    return None if isinstance(parsed, Flags) else parsed


def of_bytes(raw: bytes) -> Refusal | None:
    read = read_region(raw)
    return None if isinstance(read, str) else read


def unexpanded(code: str) -> Refusal | None:
    return check_source(code, SIGNATURE, None)


def holds(refusal: Refusal | None, named: str, accepted: str, again: Callable[[], Refusal | None]) -> None:
    """A refusal is short, names words of what is accepted, and that is accepted."""
    assert refusal is not None, "let through"
    assert refusal.fix.endswith((".", "candidate.o", "on one line"))
    assert len(refusal.fix) < 220
    assert refusal.reason[-1] not in ".:"
    if named:
        assert named in refusal.fix, str(refusal)
        assert named in accepted
    else:
        assert LEAVING_OUT.match(refusal.fix), str(refusal)
    follows = again()
    assert follows is None, f"{refusal}\nfollowed: {follows}"


@pytest.mark.parametrize("at", range(len(SOURCE)), ids=lambda at: SOURCE[at][0][-60:])
def test_remedies_of_the_source_guard(at: int) -> None:
    bad, named, good = SOURCE[at]
    holds(judge(bad), named, good, lambda: judge(good))


@pytest.mark.parametrize("at", range(len(FLAGS)), ids=lambda at: FLAGS[at][0])
def test_remedies_of_the_flag_guard(at: int) -> None:
    bad, named, good = FLAGS[at]
    holds(of_flags(bad), named, good, lambda: of_flags(good))


@pytest.mark.parametrize("at", range(len(OBJECT)), ids=lambda at: OBJECT[at][0][:60])
def test_remedies_of_the_object_guard(at: int, tmp_path: Path) -> None:
    bad, named, good = OBJECT[at]
    holds(of_object(bad, tmp_path), named, good, lambda: of_object(good, tmp_path))


def test_remedies_without_a_compiler_and_of_bytes() -> None:
    for bad, named, good in UNEXPANDED:
        holds(unexpanded(bad), named, good, lambda good=good: unexpanded(good))  # type: ignore[misc]
    for raw, named, read in BYTES:
        holds(of_bytes(raw), named, read.decode(), lambda read=read: of_bytes(read))  # type: ignore[misc]


@cache
def reasons(module: Path) -> frozenset[str]:
    """The reasons that a module of the guards can give, as regular expressions, read from its source."""
    tree = ast.parse(module.read_text())
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            where = {"Refusal": 1, "_refusal": 0, "_refuse": 0 if len(node.args) == 2 else 2}.get(node.func.id)
            if where is not None:
                found.update(_patterns(node.args[where], assigned))
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and module.stem == "text":
            found.update(_patterns(node.elts[0], assigned))
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and ast.unparse(node.elts[0]).startswith("_"):
            found.update(f"the region contains {each}" for each in _patterns(node.elts[1], assigned))
    return frozenset(each for each in found if " " in each)


def _patterns(expression: ast.expr, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield re.escape(expression.value).replace("\\ ", " ").replace("\\#", "#")
    elif isinstance(expression, ast.JoinedStr):
        parts = [
            list(_patterns(part, assigned)) if isinstance(part, ast.Constant) else [".+"] for part in expression.values
        ]
        yield "".join(part[0] for part in parts)
    elif isinstance(expression, ast.IfExp):
        yield from _patterns(expression.body, assigned)
        yield from _patterns(expression.orelse, assigned)
    elif isinstance(expression, ast.Name):
        for value in assigned.get(expression.id, []):
            if not isinstance(value, ast.Name):
                yield from _patterns(value, assigned)


@pytest.mark.slow
def test_no_refusal_is_without_its_remedy(tmp_path: Path) -> None:
    """A new reason in the guards' source fails here until it has a line in the tables above."""
    given = [judge(bad) for bad, _, _ in SOURCE] + [of_flags(bad) for bad, _, _ in FLAGS]
    given += [of_object(bad, tmp_path) for bad, _, _ in OBJECT]
    given += [unexpanded(bad) for bad, _, _ in UNEXPANDED] + [of_bytes(raw) for raw, _, _ in BYTES]
    said = [refusal.reason for refusal in given if refusal is not None]
    folder = Path(cudamaster.guards.__file__).parent
    known = set().union(*(reasons(module) for module in folder.glob("*.py")))
    known |= {f".+ {re.escape(what)}" for _, what, _ in _FORBIDDEN_GROUPS}
    known |= {".+ belongs to the harness", "the wrapper takes .+ where .+ is due"}
    assert len(known) > 60, "the guards' source is read another way now"
    missing = {each for each in known - UNREACHED if not any(re.fullmatch(each, one, re.S) for one in said)}
    assert not missing


DUE = 'extern "C" void rms_norm_optimized('
OTHER_TYPE = "template <class T> using Of = T*;\nextern"
# What a reader of the baseline writes first, and what only a build tells: edit of the baseline, reason, and remedy.
BUILT: tuple[tuple[tuple[tuple[str, str], ...], str, str], ...] = (
    (
        (),
        "rms_norm is the baseline's name",
        "Declare your wrapper as " + (due := 'extern "C" void rms_norm_optimized('),
    ),
    (((" rms_norm(", " rms_norm_optimized("), ("int N)", "long N)")), "'long N' where int N is due", f"Write {DUE}"),
    (
        ((" rms_norm(", " rms_norm_optimized("), ("extern", OTHER_TYPE), ("(float* output", "(Of<double> output")),
        "'Of<double> output' where float* output is due",
        f"Write {DUE}",
    ),
    (
        ((" rms_norm(", " rms_norm_optimized("), ("int threads = 256", "int threads = 256 * __OPTIMIZE__")),
        "the text depends on how it is compiled",
        "a constant or a macro of your own",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(BUILT)), ids=lambda at: BUILT[at][1])
def test_the_command_line_names_what_is_accepted(at: int, tmp_path: Path) -> None:
    """The baseline's own text, edited: the refusal shows the wrapper's signature."""
    edits, reason, remedy = BUILT[at]
    code = (resources.bench() / "fp32" / "rms_norm.cu").read_text()
    for old, new in edits:
        head, found, tail = code.rpartition(old)
        assert found
        code = head + new + tail
    file = tmp_path / "mine.cu"
    file.write_text(code)
    words = [sys.executable, "-m", "cudamaster", "evaluate", "rms_norm", str(file), "--device", "cpu", "--check-only"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stdout.split())
    assert reason in said
    assert remedy in said
