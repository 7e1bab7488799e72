"""The wrapper's interface as the source guard reads it: the types of its parameters, its linkage."""

import pytest

from cudamaster.guards.lexer import Kind, lex
from cudamaster.guards.names import KEYWORDS
from cudamaster.guards.signature import Signature, canonical_type, compiler_check, refused_by_compiler
from cudamaster.guards.source import check_source, left_to_compiler

from .support import SIGNATURE, judge


def test_signature_is_compared_as_a_caller_sees_it() -> None:
    """Spelling and qualifiers do not count, what a caller would notice does."""
    same = ["const float*", "float const *", "const float * __restrict__", "float const* const", "const float []",
            "float*", "volatile float*", "float[16]"]  # fmt: skip
    assert {canonical_type(text) for text in same} == {("float", "*")}
    assert canonical_type("unsigned") == canonical_type("const uint32_t") == canonical_type("std::uint32_t")
    assert canonical_type("long unsigned int") == canonical_type("size_t")
    assert canonical_type("float**") != canonical_type("float*")
    assert canonical_type("float&") != canonical_type("float*")
    assert canonical_type("int") != canonical_type("long")
    assert canonical_type("const int* const*") == canonical_type("const int**")
    assert canonical_type("__nv_bfloat16*") == canonical_type("T*", {"T": "nv_bfloat16"})
    assert canonical_type("P", {"P": "const T*", "T": "float"}) == canonical_type("float*")


@pytest.mark.parametrize(
    "text",
    ["Ptr<float>", "typename A::type*", "float (*)", "float (*)[4]", "float[2][3]", "decltype(nullptr)", "auto", "A*",
     "std::conditional_t<true, float, int>*", "void (*)(int)", "my::int32_t", "unsigned __int128", "cuda::std::size_t"],
)  # fmt: skip
def test_what_text_does_not_tell_is_left_open(text: str) -> None:
    """Neither the same nor another type: the compiler is asked. `A` is an alias of an array."""
    assert canonical_type(text, {"A": "float[4]", "F": "float(int)"}) is None


def test_an_alias_does_not_name_what_the_standard_library_has() -> None:
    """An author's `byte` is int, and `std::byte` an enumeration all the same."""
    aliases = {"byte": "int"}
    assert canonical_type("byte", aliases) == canonical_type("::byte", aliases) == ("int",)
    assert canonical_type("std::byte", aliases) is canonical_type("::std::byte", aliases) is None
    assert canonical_type("const std::uint64_t*", aliases) == canonical_type("size_t*")


INTERFACES = {
    "no const": "float* x, float* y, int n",
    "const everywhere": "const float* const x, const float* y, const int n",
    "restricted": "const float* __restrict__ x, float* __restrict y, int n",
    "volatile": "volatile const float* x, float* y, int n",
    "other names": "const float* input, float* output, int count",
    "no names": "const float*, float*, int",
    "defaults": "const float* x, float* y = nullptr, int n = 1 << 4",
    "arrays": "const float x[], float y[16], int n",
    "other spelling": "float const *x, float y[], signed int n",
    "fixed width": "const float* x, float* y, std::int32_t n",
    "comments": "const float* x /* in */, float* y, // out\n int n",
    "maybe unused": "const float* x, float* y, [[maybe_unused]] int n",
}
HEADS = {
    "block": 'extern "C" {{ void task_optimized({0}) {{}} }}',
    "host": '__host__ extern "C" void task_optimized({0}) {{}}',
    "extern in a block": 'extern "C" {{ extern void task_optimized({0}) {{}} }}',
    "attribute": 'extern "C" __attribute__((visibility("default"), noinline)) void task_optimized({0}) {{}}',
    "declared before": 'extern "C" void task_optimized(const float*, float*, int);\n'
    'extern "C" void task_optimized({0}) {{}}',
    "linkage by its declaration": 'extern "C" {{ void task_optimized(const float*, float*, int); }}\n'
    "void task_optimized({0}) {{}}",
    "trailing return": 'extern "C" auto task_optimized({0}) -> void {{}}',
    "never throws": 'extern "C" void task_optimized({0}) noexcept {{}}',
}


@pytest.mark.parametrize("name", INTERFACES)
def test_what_is_called_the_same_way_is_accepted(name: str) -> None:
    """Parameters as a C caller sees them: by number and type."""
    code = f'#include <cstdint>\nextern "C" void task_optimized({INTERFACES[name]}) {{}}'
    assert judge(code) is None
    assert left_to_compiler(code, SIGNATURE, None) == ()


@pytest.mark.parametrize("name", HEADS)
def test_whatever_gives_the_wrapper_its_linkage(name: str) -> None:
    """Each way to define one function of C linkage."""
    assert judge(HEADS[name].format("float* x, float* y, int n")) is None


def test_a_refusal_names_what_differs_and_what_is_due() -> None:
    refusal = judge('extern "C" void task_optimized(float* x, float* y, size_t n = 0) {}')
    assert refusal is not None
    assert "'size_t n = 0' where int n is due" in refusal.reason
    assert str(SIGNATURE) in refusal.fix


def test_what_the_compiler_is_asked() -> None:
    """The parameters that the text does not tell, by their places, in words that no region can redefine."""
    code = (
        "template <class T> using Ptr = T*;\n"
        'extern "C" void task_optimized(Ptr<const float> x, float* y, decltype(sizeof(0)) n) {}'
    )
    assert judge(code) is None
    undecided = left_to_compiler(code, SIGNATURE, None)
    assert [(one.at, one.written) for one in undecided] == [(0, "Ptr<const float> x"), (2, "decltype(sizeof(0)) n")]
    asked = compiler_check(SIGNATURE, undecided)
    names = {token.text for token in lex(asked).tokens if token.kind is Kind.NAME}
    assert {name for name in names if "mskb" not in name} <= {*KEYWORDS, "task_optimized"}
    assert (
        refused_by_compiler("candidate.cu:30: error: static assertion failed: mskb_parameter_2", undecided)
        == undecided[1]
    )
    assert refused_by_compiler("error: expected ;", undecided) is None


def test_wrapper_with_no_parameters() -> None:
    """(void) is an empty list."""
    code = 'extern "C" void task_optimized(void) {}'
    assert check_source(code, Signature("task_optimized", ()), None) is None
    assert check_source(code, SIGNATURE, None) is not None
