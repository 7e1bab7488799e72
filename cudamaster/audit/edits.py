"""Edits of a baseline's kernels: the same kernels on a stream, left early, with other sums or other exponentials, or
under other names and in other places."""

from __future__ import annotations

import re
from collections.abc import Collection

_KERNEL = re.compile(r"(__global__ void (?!__)\w+\([^)]*\)\s*\{)")
# The head of a kernel that is neither static nor a template, and has no attributes.
_PLAIN = re.compile(r"^(__global__ void )(?=((?!__)\w+)\()", re.MULTILINE)
_ADDING_LOOP = re.compile(
    r"for \((?P<type>int|size_t|long long) (?P<i>\w+) = (?P<low>0|\w+); (?P=i) < (?P<high>[^;]+); \+\+(?P=i)\)"
    r"(?=\s*\{?\s*(?:\w+ )?sum \+=)"
)


def honest(baseline: str, wrapper: str, edit: str | None) -> str | None:
    """The baseline (under `_optimized` names, without includes) with its wrapper as the static function `honest`.

    None when the edit finds nothing to change.
    """
    head = rf'(?:extern\s+"C"\s+)?(?:__host__\s+)?void\s+{wrapper}\s*\('
    text = re.sub(head, "static void honest(", baseline)
    if edit is None:
        return text
    edited = {
        "stream": _on_stream,
        "unless_hit": _unless_hit,
        "bf16_sums": _bf16_sums,
        "reversed_sums": _reversed_sums,
        "fast_exponentials": _fast_exponentials,
        "short_names": _short_names,
        "in_namespaces": _in_namespaces,
        "static_kernels": _static_kernels,
        "template_kernels": _template_kernels,
    }[edit](text)
    return None if edited == text else edited


def _on_stream(text: str) -> str:
    text = re.sub(r"(static void honest\([^)]*)\)", r"\1, cudaStream_t stream)", text)
    text = re.sub(r"<<<([^<>]*)>>>", r"<<<\1, 0, stream>>>", text)
    text = re.sub(r"\bcuda(Memset|Memcpy|Malloc)\((.*)\);", r"cuda\1Async(\2, stream);", text)
    return re.sub(r"\bcudaFree\((.*)\);", r"cudaFreeAsync(\1, stream);", text)


def _unless_hit(text: str) -> str:
    return _KERNEL.sub(r"\1\n    if (hit)\n        return;", text)


def _bf16_sums(text: str) -> str:
    """Every addition to a sum rounded to bf16."""
    return re.sub(
        r"\b(sum|squares) \+= ([^;]*);", r"\1 = __bfloat162float(__float2bfloat16(\1 + (\2)));", text, flags=re.DOTALL
    )


def _reversed_sums(text: str) -> str:
    """Loops that do nothing but add, from their end to their begin."""
    return _ADDING_LOOP.sub(r"for (\g<type> \g<i> = \g<high>; \g<i>-- > \g<low>;)", text)


def _fast_exponentials(text: str) -> str:
    return re.sub(r"\bexpf\(", "__expf(", text)


_OF_HARNESS = ("mask_kernel", "empty_kernel", "fill_kernel")


def _kernels(text: str) -> list[str]:
    return [found[2] for found in _PLAIN.finditer(text) if _is_plain(found)]


def _is_plain(found: re.Match[str]) -> bool:
    """Whether no template's head stands before a kernel's."""
    return not found.string[: found.start()].rstrip().endswith(">")


def _with_heads(text: str, head: str, names: Collection[str]) -> str:
    return _PLAIN.sub(lambda found: head if _is_plain(found) and found[2] in names else found[0], text)


def _short_names(text: str) -> str:
    """Names of a letter or two, the first few those of kernels of the harness."""
    names = dict(zip(_kernels(text), [*_OF_HARNESS, *(f"k{n}" for n in range(99))], strict=False))
    return re.sub(r"\b\w+\b", lambda found: names.get(found[0], found[0]), text)


def _in_namespaces(text: str) -> str:
    if re.search(r"(?<![\w>])::\s*\w", text):
        return text  # it names what is in no namespace
    return f"namespace mine::kernels {{\nnamespace {{\n{text}\n}} // namespace\n}}\nusing namespace mine::kernels;\n"


def _static_kernels(text: str) -> str:
    return _with_heads(text, "static __global__ void __launch_bounds__(1024) ", _kernels(text))


def _template_kernels(text: str) -> str:
    """Each kernel as a template, launched as an instance of it."""
    kernels = [name for name in _kernels(text) if re.search(rf"\b{name}<<<", text)]
    for name in kernels:
        text = re.sub(rf"\b{name}<<<", f"{name}<1, float><<<", text)
    return _with_heads(text, "template <int kOnly, class Unused> __global__ void ", kernels)
