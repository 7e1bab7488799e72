"""A host function to paste, for a file with kernels alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudamaster.guards.grammar import text_of
from cudamaster.guards.lexer import Kind
from cudamaster.guards.signature import canonical_type
from cudamaster.guards.source import type_of
from cudamaster.guards.storage import declarators
from cudamaster.making.reading import Function, Source, parameter_nodes

_WHOLE = {("int",), ("unsigned int",), ("long",), ("unsigned long",)}


def adapter(source: Source, kernel: Function) -> str:
    """A host function that launches a kernel with one thread for each of as many elements as its first int says.

    A kernel that asks for `.y` gets one for each pair of its first two. In a template's place float stands for a type.
    """
    declared = parameter_nodes(kernel)
    parameters = ", ".join(" ".join(text_of(node).split()) for node in declared)
    names = [found[0] if (found := next(declarators(node), None)) else "" for node in declared]
    whole = [name for name, node in zip(names, declared, strict=True) if canonical_type(type_of(node)) in _WHOLE]
    name = kernel.name.removesuffix("_kernel")
    name = f"launch_{kernel.name}" if source.named(name) else name
    called = "::".join([*(each for each in kernel.scope if each != "(unnamed)"), kernel.name])
    notes = []
    if kernel.template:
        types, arguments = _template(kernel)
        for each in types:
            parameters = re.sub(rf"\b{each}\b", "float", parameters)
        called += f"<{', '.join(arguments)}>"
        notes.append(f"// {kernel.name} is a template: put the types and numbers that you mean in its place.")
    if _is_flat(source, kernel):
        count = whole[0] if whole else "/* elements */"
        grid = f"    int threads = 256;\n    int blocks = ({count} + threads - 1) / threads;\n"
    else:
        across, down = (*whole, *["/* size */"] * 2)[:2] if len(whole) != 1 else whole * 2
        notes.append(f"// x goes over {across}, y over {down}: exchange them if the kernel means it so.")
        grid = f"    dim3 threads(16, 16);\n    dim3 blocks(({across} + 15) / 16, ({down} + 15) / 16);\n"
    return (
        f"{''.join(f'{note}{chr(10)}' for note in notes)}"
        f"void {name}({parameters}) {{\n"
        f"{grid}"
        f"    {called}<<<blocks, threads>>>({', '.join(names)});\n"
        f"}}\n"
    )


def _is_flat(source: Source, kernel: Function) -> bool:
    """Whether the kernel asks for no place along y."""
    tokens = source.tokens_in(kernel.node.start_byte, kernel.node.end_byte)
    words = [token.text for token in tokens if token.kind is not Kind.NEWLINE]
    threes = zip(words, words[1:], words[2:], strict=False)
    return not any(first in ("threadIdx", "blockIdx") and third == "y" for first, _, third in threes)


def _template(kernel: Function) -> tuple[Sequence[str], Sequence[str]]:
    """The names of a template's types, and its arguments: float for each type."""
    listed = kernel.outer.child_by_field_name("parameters")
    types, arguments = [], []
    for node in [] if listed is None else listed.named_children:
        words = re.findall(r"\w+", text_of(node).partition("=")[0])
        if node.type in ("type_parameter_declaration", "optional_type_parameter_declaration"):
            types.append(words[-1])
            arguments.append("float")
        elif node.type != "comment":
            arguments.append(f"/* {words[-1]} */")
    return types, arguments
