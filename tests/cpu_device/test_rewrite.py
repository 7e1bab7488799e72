"""The rewriter: what it changes, what it leaves alone, and what it refuses."""

import pytest

from cudamaster.devices.cpu.rewrite import Unsupported, rewrite


@pytest.mark.parametrize(
    "source",
    [
        "void f() {\n  k<<<1,\n      2>>>(a,\n           b);\n}\n",
        "#define RUN(k) \\\n  k<4><<<g, b>>>( \\\n    x)\nvoid f() { RUN(k); }\n",
        "__global__ void k() {\n  extern __shared__\n    float s[];\n}\n",
        "extern __shared__ __align__(16) unsigned char s[];\n__global__ void k() {\n  s[0] = 1;\n}\n",
    ],
)
def test_lines_stay(source):
    """Each construct is replaced in as many lines as it had, so compiler errors name the right ones."""
    text = rewrite(source)
    assert text.count("\n") == source.count("\n")
    assert "<<<" not in text
    assert "extern __shared__" not in text


@pytest.mark.parametrize(
    "launch",
    [
        "k<<<1, 2>>>(a)",
        "ns::k<T, (N > 4)><<<dim3(1, 2), 32, sizeof(float) * 3, st>>>(x, n)",
        "kernels[i]<<<1, 2>>>(a)",
        "CHECK((k<<<1, 2>>>(a), cudaGetLastError()))",
        "DISPATCH(T, [&] { k<T><<<1, 2>>>(a); })",
        "if (x) k<1><<<1, 2>>>(a); else k<2><<<1, 2>>>(a)",
    ],
)
def test_launch_forms(launch):
    """Launches are understood wherever an expression may stand."""
    text = rewrite(f"void f() {{ {launch}; }}")
    assert text.count("::cudamaster_cpu::launch(") == launch.count("<<<")
    assert "<<<" not in text


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("while (*f == 0);", True),
        ("while (!f[1]) { /* wait */ }", True),
        ("do {} while (!*f);", True),
        ("for (; *f == 0;) ;", True),
        ("for (int i = 0; i < 9; f[i++] = 0);", False),
        ("while (*f == 0) g(f + 1);", False),
    ],
)
def test_empty_loops_let_others_run(loop, waits):
    """A loop of device code that only waits gives way; host code and loops that do something stay."""
    function = f"void g(volatile int* f) {{ {loop} }}"
    assert rewrite("__device__ " + function).count("::cudamaster_cpu::spun();") == waits
    assert rewrite(function) == function


def test_other_text_is_left_alone():
    """Comments, strings and plain code come through byte for byte."""
    source = '// k<<<1, 2>>>(a)\nconst char* s = "asm <<< tex2D";\nint x = 1 << 2; /* asm("") */\n'
    assert rewrite(source) == source


@pytest.mark.parametrize(
    ("source", "construct", "line"),
    [
        (
            '__device__ void f() {\n  asm volatile("tcgen05.commit;");\n}',
            "PTX instruction tcgen05.commit (tcgen05 is misspelt, or missing from docs/ptx.md)",
            2,
        ),
        (
            '__device__ void f() {\n  asm volatile("cp.async.bulk.comit_group;");\n}',
            "PTX instruction cp.async.bulk.comit_group (cp with .comit_group is misspelt, or missing from docs/ptx.md)",
            2,
        ),
        (
            '__device__ void f(float x) {\n  asm("tanh.f32 %0, %0;" : "+f"(x));\n}',
            "PTX instruction tanh.f32 (it lacks .approx, or is missing from docs/ptx.md)",
            2,
        ),
        ('__device__ void f() {\n  asm("mov.u32 %0, 1;\\n"\n  "mul.qi.u32 %0, %0, 2;" : "=r"(x));\n}', "mul.qi.u32", 3),
        ('void f() {\n  asm("mov." OTHER " %0, 1;" : "=r"(x)); }\n', "put together by a macro", 2),
        ("#include <cuda/semaphore>\n", "header <cuda/semaphore>", 1),
        ("\n#include <cub/cub.cuh>\n", "header <cub/cub.cuh>", 2),
        ("\n\n__global__ void k() { float x = tex2D<float>(t, 0, 0); }", "texture memory", 3),
        ("__global__ void child();\n__global__ void k() { child<<<1, 1>>>(); }", "dynamic parallelism", 2),
        ("__global__ void __block_size__((32, 1, 1)) k() {}", "__block_size__", 1),
        ("#define BAD k <<< 1, 2\n", "kernel launch", 1),
    ],
)
def test_unsupported(source, construct, line):
    """What can't be executed is named with its line."""
    with pytest.raises(Unsupported) as caught:
        rewrite(source)
    assert construct in str(caught.value)
    assert caught.value.line == line


def test_shared_variables_of_the_debug_build():
    """Each __shared__ variable of a function gets an allocation of its own; file-scope ones stay."""
    text = rewrite("__shared__ int g;\n__global__ void k() {\n  __shared__ float a[2][3], *p;\n}", exact_shared=True)
    assert text.count("exact_shared<") == 2
    assert text.splitlines()[0] == "__shared__ int g;"


def test_an_alignment_may_go_over_lines():
    """As clang-format breaks it before a long comment."""
    source = "__global__ void k() {\n  __shared__ __align__(\n      16) int a[4];\n}"
    text = rewrite(source, exact_shared=True)
    assert "( 16)" in text
    assert text.count("\n") == source.count("\n")


def test_no_function_is_kept_apart() -> None:
    """A compiler makes no call-out for what a function that is not inlined is given by value."""
    text = rewrite(
        "__attribute__((noinline, pure)) __device__ int f(int x);\n"
        "[[gnu::noinline]] int g(int noinline);\n// noinline\n"
    )
    assert text.splitlines() == [
        "__attribute__((unused, pure)) __device__ int f(int x);",
        "[[gnu::unused]] int g(int noinline);",
        "// noinline",
    ]
