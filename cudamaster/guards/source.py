"""The source guard: may this region be compiled and run?

It judges the region after preprocessing, so that a macro hides nothing, and its directives and names before, so that an
untaken branch hides nothing either. Two things pass on purpose: whatever a call does with memory in device buffers,
which fresh inputs defeat, and host code that reads or writes through wild pointers, which the worker's own process
contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from cudamaster.guards import text as text_checks
from cudamaster.guards.grammar import Parsed, body_of, depth, parse, text_of, walk
from cudamaster.guards.lexer import lex, split, words
from cudamaster.guards.preprocess import REGION_FILE, Region, region_of
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature, Undecided, canonical_type
from cudamaster.guards.storage import SYMBOL_CALLS, check_storage, declarators, device_variables, is_function

_CUDA_OWN = re.compile(r"cuda(?!Check|Assert|Safe|Error|Verify)[A-Z]\w*|cu[A-Z]\w*")
_DECLARING = words(
    """
    declaration function_definition field_declaration parameter_declaration optional_parameter_declaration
    """
)
_REGION_LIMIT = 512 * 1024  # characters after preprocessing; a region without macro games is far below
_DEPTH_LIMIT = 250  # ten times what kernels written by hand take; climbing a tree costs time with its depth squared
_FOREIGN_NAMESPACES = frozenset({"std", "cuda", "nv", "nvcuda", "cooperative_groups", "__gnu_cxx", "cudaraft"})
_SCOPES = words(
    """
    declaration function_definition template_declaration namespace_definition linkage_specification
    struct_specifier class_specifier union_specifier enum_specifier type_definition alias_declaration
    using_declaration static_assert_declaration namespace_alias_definition template_instantiation
    concept_definition ; { } comment empty_declaration
    """
)


@dataclass
class _Wrappers:
    """What was found of the wrapper: its definitions, and whether a declaration before them gives it C linkage."""

    definitions: list[Node] = field(default_factory=list)
    declared: bool = False


def check_source(code: str, signature: Signature, preprocessed: str | None) -> Refusal | None:
    """None when the region keeps the contract, else the first breach found.

    `preprocessed` is what `preprocess` gave. None means that no compiler is at hand: macros then may not carry
    storage words, and the check is weaker.
    """
    refused = check_as_written(code, signature)
    if refused:
        return refused
    if preprocessed is None:
        refused = text_checks.check_unexpanded(split(lex(code).tokens)[0])
    region = _region(code, preprocessed)
    if len(region.text) > _REGION_LIMIT:
        return Refusal(
            "source", "the region's macros expand to too much text", None, "Use templates and loops in their place."
        )
    expanded_directives, expanded_code = split(lex(region.text, region.lines).tokens)
    refused = (
        refused
        or text_checks.check_entered(region, signature.headers)
        or text_checks.check_directives(expanded_directives, expanded=True)
        or text_checks.check_names(expanded_code, signature.wrapper, signature.headers)
    )
    return refused or _check_tree(parse(region), signature)


def check_as_written(code: str, signature: Signature) -> Refusal | None:
    """The part of `check_source` that needs no preprocessor: characters, directives and names."""
    refused = text_checks.check_characters(code)
    if refused:
        return refused
    raw = lex(code)
    raw_directives, raw_code = split(raw.tokens)
    bodies = tuple(token for directive in raw_directives if directive.name == "define" for token in directive.rest)
    return (
        text_checks.check_lexing(raw)
        or text_checks.check_directives(raw_directives, expanded=False, libraries=signature.headers)
        or text_checks.check_names(raw_code, signature.wrapper, signature.headers)
        or text_checks.check_names(bodies, signature.wrapper, signature.headers)
    )


def check_defined(code: str, signature: Signature) -> Refusal | None:
    """Why a text does not define the wrapper of a signature, with C linkage and its parameters; None where it does.

    It looks at nothing else, and takes macros as they are written.
    """
    parsed = parse(_region(code, None))
    definitions, declared = [], False
    for node in walk(parsed.root):
        if node.type in ("function_definition", "declaration"):
            found = [chain for name, chain in declarators(node) if name == signature.wrapper and is_function(chain)]
            declared |= bool(found) and _has_c_linkage(node)
            definitions += [node] if found and node.type == "function_definition" else []
    if len(definitions) != 1:
        what = f"is defined {len(definitions)} times" if definitions else "is not defined"
        line = parsed.line(definitions[1]) if definitions else None
        return Refusal("source", f"the wrapper {signature.wrapper} {what}", line, f"Define {signature} once.")
    if not declared:
        return _refuse(
            parsed, definitions[0], f"{signature.wrapper} lacks extern C linkage at file scope", f"Write {signature}."
        )
    return _check_wrapper(parsed, definitions[0], signature)


def _has_c_linkage(node: Node) -> bool:
    """Whether a definition or declaration stands in extern "C"."""
    around = node.parent
    while around is not None:
        value = around.child_by_field_name("value") if around.type == "linkage_specification" else None
        if value is not None and text_of(value) == '"C"':
            return True
        around = around.parent
    return False


def device_names(code: str, preprocessed: str | None) -> frozenset[str]:
    """The region's variables in device memory: nvcc leaves a shadow of each in the host's object, and `check_object`
    has to know them from the host's own."""
    return device_variables(parse(_region(code, preprocessed)))


def left_to_compiler(code: str, signature: Signature, preprocessed: str | None) -> tuple[Undecided, ...]:
    """The wrapper's parameters whose type the text does not show, in a region that `check_source` lets pass."""
    parsed = parse(_region(code, preprocessed))
    wrappers = _Wrappers()
    _check_scopes(parsed, parsed.root, signature, wrappers, c_linkage=False, nested=False)
    if len(wrappers.definitions) != 1:
        return ()
    got = _parameters(parsed, wrappers.definitions[0], signature)
    if isinstance(got, Refusal):
        return ()
    return tuple(Undecided(at, text) for at, (parts, text) in enumerate(got) if parts is None)


def _region(code: str, preprocessed: str | None) -> Region:
    if preprocessed is None:
        return region_of(f'# 1 "{REGION_FILE}"\n{code}')
    return region_of(preprocessed)


def _check_tree(parsed: Parsed, signature: Signature) -> Refusal | None:
    if depth(parsed.root) > _DEPTH_LIMIT:
        return Refusal("source", "the region nests too deep", None, "Use loops, and a statement for each step.")
    for attribute in parsed.attributes:
        if not attribute.harmless:
            return Refusal(
                "source",
                f"the attribute {attribute.name} is not allowed",
                attribute.token.line,
                "Remove it: aligned, always_inline, noinline, unused and the like and CUDA's qualifiers are allowed.",
            )
    for token in parsed.asm:
        node = parsed.root.descendant_for_byte_range(token.start, token.end)
        if not parsed.on_device(parsed.function_of(node)):
            return Refusal(
                "source",
                "assembly outside a device function is not allowed",
                token.line,
                "Use inline PTX only in __global__ and __device__ functions.",
            )
    wrappers = _Wrappers()
    refused = _check_scopes(parsed, parsed.root, signature, wrappers, c_linkage=False, nested=False)
    refused = refused or _check_declared(parsed) or _check_kernels(parsed) or check_storage(parsed)
    if refused:
        return refused
    if (times := len(wrappers.definitions)) != 1:
        what = "is not defined" if times == 0 else f"is defined {times} times"
        return Refusal("source", f"the wrapper {signature.wrapper} {what}", None, f"Define {signature} once.")
    return _check_wrapper(parsed, wrappers.definitions[0], signature)


def _check_scopes(
    parsed: Parsed, scope: Node, signature: Signature, wrappers: _Wrappers, *, c_linkage: bool, nested: bool
) -> Refusal | None:
    """Everything at namespace scope has to be understood; C linkage is the wrapper's and the device's."""
    for node in scope.children:
        refused = None
        if node.type == "ERROR" or (node.is_named and node.type not in _SCOPES and text_of(node).strip(" \n;")):
            line = parsed.line(node)
            refused = Refusal(
                "source",
                "this part of the region is not understood",
                line,
                "Correct its syntax, or write it as a plain function, type, namespace or constexpr constant.",
            )
        elif node.type == "namespace_definition":
            name = node.child_by_field_name("name")
            body = node.child_by_field_name("body")
            if name is not None and text_of(name).partition(":")[0] in _FOREIGN_NAMESPACES:
                refused = _refuse(
                    parsed, node, f"the namespace {text_of(name)} is not yours", "Use one of your own, such as mine."
                )
            elif body is not None:
                refused = _check_scopes(parsed, body, signature, wrappers, c_linkage=c_linkage, nested=True)
        elif node.type == "linkage_specification":
            refused = _check_linkage(parsed, node, signature, wrappers, nested=nested)
        elif node.type == "function_definition":
            refused = _check_function(parsed, node, signature, wrappers, c_linkage=c_linkage, nested=nested)
        elif node.type == "declaration":
            refused = _check_prototype(parsed, node, signature, wrappers, c_linkage=c_linkage, nested=nested)
        if refused:
            return refused
    return None


def _check_linkage(
    parsed: Parsed, node: Node, signature: Signature, wrappers: _Wrappers, *, nested: bool
) -> Refusal | None:
    value = node.child_by_field_name("value")
    body = node.child_by_field_name("body")
    if value is None or body is None or text_of(value) not in ('"C"', '"C++"'):
        return _refuse(parsed, node, "this linkage is not known", f"Use it only for the wrapper: {signature}.")
    c_linkage = text_of(value) == '"C"'
    if body.type == "declaration_list":
        return _check_scopes(parsed, body, signature, wrappers, c_linkage=c_linkage, nested=nested)
    if body.type == "function_definition":
        return _check_function(parsed, body, signature, wrappers, c_linkage=c_linkage, nested=nested)
    return _check_prototype(parsed, body, signature, wrappers, c_linkage=c_linkage, nested=nested)


def _check_function(
    parsed: Parsed, node: Node, signature: Signature, wrappers: _Wrappers, *, c_linkage: bool, nested: bool
) -> Refusal | None:
    found = next(declarators(node), None)
    if found is None or not is_function(found[1]):
        return _refuse(
            parsed,
            node,
            "this definition is not understood",
            "Write a plain function, as static int name(int n) { ... }.",
        )
    name = found[0]
    if name == signature.wrapper and not nested and (c_linkage or wrappers.declared):
        wrappers.definitions.append(node)
        return None
    if name == signature.wrapper:
        return _refuse(parsed, node, f"{name} lacks extern C linkage at file scope", f"Define {signature}.")
    if c_linkage and not parsed.on_device(node):
        if name == signature.wrapper.removesuffix("_optimized"):
            return _refuse(parsed, node, f"{name} is the baseline's name", f"Declare your wrapper as {signature}.")
        fix = f"Make it static, or if it is the wrapper, declare it as {signature}."
        return _refuse(parsed, node, f"the host function {name} has C linkage", fix)
    return None


def _check_prototype(
    parsed: Parsed, node: Node, signature: Signature, wrappers: _Wrappers, *, c_linkage: bool, nested: bool
) -> Refusal | None:
    if node.type != "declaration":
        return None
    marks = parsed.head_marks(node, node.end_byte)
    external = c_linkage or any(text_of(child) == "extern" for child in node.children)
    for name, chain in declarators(node):
        wrappers.declared |= name == signature.wrapper and c_linkage and not nested
        if is_function(chain) and external and name != signature.wrapper and not marks & {"__global__", "__device__"}:
            return _refuse(
                parsed,
                node,
                f"{name} is declared here and defined outside the region",
                "Define it here as a static function, or call what allowed headers such as <cstring> declare.",
            )
    return None


def _check_declared(parsed: Parsed) -> Refusal | None:
    """No function, variable or parameter may stand in for one of CUDA's own: other checks go by those names.

    A kernel of C++ linkage cannot: it is launched, not called.
    """
    for node in walk(parsed.root):
        if node.type in _DECLARING:
            for name, chain in declarators(node):
                if _CUDA_OWN.fullmatch(name) and (name in SYMBOL_CALLS or not _launched(parsed, node, chain)):
                    return _refuse(
                        parsed, node, f"{name} is declared, which belongs to CUDA", f"Call it my_{name}, say."
                    )
    return None


def _launched(parsed: Parsed, node: Node, chain: tuple[Node, ...]) -> bool:
    around = node.parent
    while around is not None and around.type != "linkage_specification":
        around = around.parent
    return around is None and is_function(chain) and "__global__" in parsed.head_marks(node, chain[0].start_byte)


def _check_kernels(parsed: Parsed) -> Refusal | None:
    """Each `__global__` has to stand in the head of a function: other checks go by whose mark it is."""
    placed: list[tuple[int, int]] = []
    for node in walk(parsed.root):
        if node.type not in ("function_definition", "declaration", "field_declaration", "template_instantiation"):
            continue
        for _, chain in declarators(node):
            function = next((part for part in chain if part.type == "function_declarator"), None)
            if function is None:
                continue
            placed.append((parsed.head_start(node), function.start_byte))
    for token in parsed.tokens:
        if token.text == "__global__" and not any(start <= token.start < end for start, end in placed):
            return Refusal(
                "source", "this kernel is not understood", token.line, "Write __global__ void name(parameters) { ... }."
            )
    return None


def _check_wrapper(parsed: Parsed, node: Node, signature: Signature) -> Refusal | None:
    body = body_of(node)
    start, end = parsed.head_start(node), body.start_byte if body is not None else node.end_byte
    shown = f"Write {signature}."
    storage = {text_of(child) for child in node.children if child.type == "storage_class_specifier"}
    if body is None or storage - {"extern"}:
        return _refuse(parsed, node, "the wrapper is static, inline or without a body", shown)
    if parsed.marks_between(start, end) - {"__host__"}:
        return _refuse(parsed, node, "the wrapper is not a host function", shown)
    got = _parameters(parsed, node, signature)
    if isinstance(got, Refusal):
        return got
    if len(got) != len(signature.parameters):
        reason = f"the wrapper takes {len(got)} parameters, not {len(signature.parameters)}"
        return _refuse(parsed, node, reason, shown)
    for at, (parts, text) in enumerate(got):
        if parts is not None and parts != canonical_type(signature.parameters[at][0]):
            return _refuse(parsed, node, signature.differs(at, text), shown)
    return None


def _parameters(
    parsed: Parsed, wrapper: Node, signature: Signature
) -> list[tuple[tuple[str, ...] | None, str]] | Refusal:
    """The wrapper's parameters, each with its type if the text shows it, and as it was written."""
    _, chain = next(declarators(wrapper))
    shown = f"Write {signature}."
    parameters = chain[0].child_by_field_name("parameters")
    if len(chain) != 2 or parameters is None or not _returns_nothing(wrapper, chain[0]):
        return _refuse(parsed, wrapper, "the wrapper does not return void plainly", shown)
    aliases = aliases_of(parsed.root)
    got = []
    for parameter in parameters.named_children:
        if parameter.type == "comment":
            continue
        if parameter.type not in ("parameter_declaration", "optional_parameter_declaration"):
            return _refuse(
                parsed, parameter, f"the wrapper's parameter {text_of(parameter)!r} is not a plain one", shown
            )
        got.append((canonical_type(type_of(parameter), aliases), text_of(parameter)))
    return [] if [parts for parts, _ in got] == [("void",)] else got


def _returns_nothing(function: Node, declarator: Node) -> bool:
    """`void f()`, or `auto f() -> void`."""
    kind = function.child_by_field_name("type")
    trailing = next((text_of(child) for child in declarator.children if child.type == "trailing_return_type"), "")
    returned = trailing.removeprefix("->").strip() if kind is not None and text_of(kind) == "auto" else ""
    return "void" in (returned, text_of(kind) if kind is not None else "")


def type_of(parameter: Node) -> str:
    """A parameter's type text: all of it but the declared name and its default."""
    text = text_of(parameter)
    given = next((child for child in parameter.children if child.type == "="), None)
    if given is not None:
        text = text[: given.start_byte - parameter.start_byte]
    found = next(declarators(parameter), None)
    if found is None or found[1][-1].type != "identifier":
        return text
    name = found[1][-1]
    start = name.start_byte - parameter.start_byte
    return f"{text[:start]} {text[start + name.end_byte - name.start_byte :]}"


def aliases_of(root: Node) -> dict[str, str]:
    """The author's plain typedefs at file scope, so that `using bf16 = __nv_bfloat16` may be used."""
    found: dict[str, str] = {}
    for node in root.children:
        if node.type == "alias_declaration":
            name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
            if name is not None and kind is not None:
                found[text_of(name)] = text_of(kind)
        elif node.type == "type_definition":
            kind, declared = node.child_by_field_name("type"), node.child_by_field_name("declarator")
            if kind is not None and declared is not None and declared.type == "type_identifier":
                found[text_of(declared)] = text_of(kind)
    return found


def _refuse(parsed: Parsed, node: Node, reason: str, fix: str) -> Refusal:
    return Refusal("source", reason, parsed.line(node), fix)
