"""No region ends the process, however it spells the call."""

import pytest

from .support import judge, needs_nvcc, region

# The object guard leaves them to this one: nvcc itself refers to exit (symbols.py). Through a pointer it can be called
# all the same, and is then no exit any more.
LEAVING = {
    "plain": ("", "exit(0);"),
    "global": ("", "::exit(0);"),
    "of std": ("", "std::exit(0);"),
    "spaced": ("", "std :: exit /* */ (0);"),
    "continued": ("", "ex\\\nit(0);"),
    "macro": ("#define LEAVE exit(0)", "LEAVE;"),
    "macro of the name": ("#define LEAVE exit", "LEAVE(0);"),
    "macro with a parameter": ("#define CALL(f) f(0)", "CALL(exit);"),
    "pasted": ("#define CAT(a, b) a##b", "CAT(ex, it)(0);"),
    "using": ("using std::exit;", "exit(0);"),
    "using namespace": ("using namespace std;", "exit(0);"),
    "declared": ('extern "C" void exit(int);', "exit(0);"),
    "declared in a block": ('extern "C" { [[noreturn]] void exit(int) noexcept; }', ""),
    "declared inside": ("", "void exit(int); exit(0);"),
    "in a helper": ("template <class T> static void leave(T v) { if (v) exit(v); }", "leave(n);"),
    "in a check": ("#define CHECK(c) do { if (c) { exit(EXIT_FAILURE); } } while (0)", "CHECK(cudaGetLastError());"),
    "in a branch that is not taken": ("#if 0\nvoid f() { exit(0); }\n#endif", ""),
    "at once": ("", "_exit(0);"),
    "at once, of std": ("", "std::_Exit(0);"),
    "quick": ("", "quick_exit(0);"),
    "quick, by its address": ("", "auto f = &std::quick_exit; f(0);"),
    "built in": ("", "__builtin_exit(0);"),
    "by another name": ('void leave(int) __asm__("exit");', "leave(0);"),
}  # fmt: skip


@pytest.mark.slow(but=[*(f"{name}-False" for name in LEAVING), "pasted-True", "using-True"])
@pytest.mark.parametrize("headers", [False, pytest.param(True, marks=needs_nvcc)])
@pytest.mark.parametrize("name", LEAVING)
def test_no_spelling_of_a_call_of_exit_passes(name: str, headers: bool) -> None:
    """With the names of the real headers and without."""
    before, body = LEAVING[name]
    refusal = judge(region(f"#include <cstdlib>\n{before}\n", body), headers=headers)
    assert refusal is not None
    assert refusal.fix
