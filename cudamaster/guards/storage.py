"""Finds what the host side would keep between calls: variables of static storage, and device variables used as such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tree_sitter import Node

from cudamaster.guards.grammar import Parsed, body_of, text_of, walk
from cudamaster.guards.lexer import Kind, words
from cudamaster.guards.refusal import Refusal

_DEVICE_MEMORY = frozenset({"__device__", "__constant__", "__shared__"})
SYMBOL_CALLS = words(
    """
    cudaMemcpyToSymbol cudaMemcpyToSymbolAsync cudaMemcpyFromSymbol cudaMemcpyFromSymbolAsync
    cudaGetSymbolAddress cudaGetSymbolSize
    """
)
_SCOPES = frozenset({"translation_unit", "declaration_list", "field_declaration_list"})
_PARAMETERS = frozenset({"parameter_declaration", "optional_parameter_declaration"})
_UNEVALUATED = frozenset({"sizeof_expression", "decltype", "alignof_expression"})
_CONSTANT_CALLS = frozenset({"dim3", "sizeof", "make_float2", "make_float4", "make_int2", "make_int4"})
# Functions that compilers evaluate themselves, unless the region gives these names a meaning of its own.
_FOLDED = re.compile(
    r"__builtin_(?:(?:inf|nan|huge_val)[fl]?|(?:clz|ctz|ffs|popcount)l{0,2})"
    r"|(?:::)?(?P<limits>(?:cuda::)?std::numeric_limits)<[\w:]+>::\w+"
    r"|(?:(?:::)?std::|::)?(?:min|max|(?:abs|fabs|sqrt|cbrt|exp|exp2|log|log2|log10|pow|sin|cos|tan|acos|asin|atan|tanh"
    r"|floor|ceil|erf)f?)"
)
_NAMES = frozenset({"identifier", "type_identifier", "namespace_identifier", "field_identifier"})
_USED = {"call_expression": "function", "qualified_identifier": "scope", "field_expression": "field"}
_KEEP = "A call keeps nothing: use a local variable, a __device__ buffer, or constexpr."
_EACH = "Write constexpr, or a local variable without static that each call computes."


def check_storage(parsed: Parsed) -> Refusal | None:
    """Refuses mutable globals, statics and thread-locals of the host, and host uses of device variables."""
    constant = _constexpr_functions(parsed.root)
    for node in walk(parsed.root):
        if node.type == "declaration":
            refused = _declaration(parsed, node, constant)
        elif node.type == "field_declaration":
            refused = _field(parsed, node)
        else:
            continue
        if refused:
            return refused
    return _stray_words(parsed) or _host_uses(parsed)


def device_variables(parsed: Parsed) -> frozenset[str]:
    """Names of the region's variables in device memory, static locals of device functions included."""
    return frozenset(name for name, _ in _device_variables(parsed))


def declarators(node: Node) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """The names that a declaration declares, each with its chain of declarators from the outside in."""
    for declarator in node.children_by_field_name("declarator"):
        chain: list[Node] = []
        current: Node | None = declarator
        while current is not None:
            chain.append(current)
            if current.type == "operator_cast":
                break
            inner = current.child_by_field_name("declarator")
            if inner is None and current.type in (
                "parenthesized_declarator",
                "reference_declarator",
                "attributed_declarator",
            ):
                inner = next((child for child in current.named_children if child.type != "type_qualifier"), None)
            current = inner
        yield text_of(chain[-1]), tuple(chain)


def is_function(chain: tuple[Node, ...]) -> bool:
    """Whether a chain of declarators declares a function, and not a pointer to one."""
    if _converts(chain[-1]):
        return True
    kinds = [node.type for node in chain[:-1] if node.type not in ("parenthesized_declarator", "init_declarator")]
    return bool(kinds) and kinds[-1] == "function_declarator"


def _converts(declared: Node | None) -> bool:
    """Whether a name is that of a class's conversion to another type, `S::operator bool() const`."""
    while declared is not None and declared.type == "qualified_identifier":
        declared = declared.child_by_field_name("name")
    return declared is not None and declared.type == "operator_cast"


def _declaration(parsed: Parsed, node: Node, constant: frozenset[str]) -> Refusal | None:
    function = parsed.function_of(node)
    specifiers = _words(node, "storage_class_specifier")
    names = list(declarators(node))
    if "static_assert" in text_of(node)[:13]:
        return None
    local = function is not None
    if local and not specifiers & {"static", "thread_local", "extern"}:
        return None
    if local and parsed.on_device(function):
        return None
    marks = parsed.head_marks(node, _first_declarator(node))
    if "__managed__" in marks:
        return _refuse(parsed, node, "managed memory outlives the call", _KEEP)
    if marks & _DEVICE_MEMORY:
        return None
    if not any(name for name, _ in names) and specifiers & {"static", "thread_local"} and _anonymous(node):
        return _refuse(parsed, node, "an anonymous object is kept between calls", _KEEP)
    for name, chain in names:
        if is_function(chain):
            continue
        if "extern" in specifiers:
            return _refuse(parsed, node, f"{name} is a variable from outside the region", _KEEP)
        if _is_constant(node, chain):
            refused = _initialiser(parsed, node, chain, function, constant)
            if refused:
                return refused
            continue
        where = f"the host function keeps {name}" if local else f"{name} is a mutable global of the host"
        return _refuse(parsed, node, where, _KEEP)
    return None


def _field(parsed: Parsed, node: Node) -> Refusal | None:
    specifiers = _words(node, "storage_class_specifier")
    qualifiers = _words(node, "type_qualifier")
    for name, chain in declarators(node):
        if is_function(chain):
            continue
        if specifiers & {"static", "thread_local"} and not _is_constant(node, chain):
            return _refuse(parsed, node, f"{name} is a static data member", _KEEP)
        if (specifiers | qualifiers) & {"mutable"}:
            return _refuse(
                parsed, node, f"{name} is a mutable member", "Drop mutable, and keep the value in a local variable."
            )
    return None


def _is_constant(node: Node, chain: tuple[Node, ...]) -> bool:
    """Whether the declared object itself is const: for a pointer the pointer, not what it points to."""
    if "constexpr" in _words(node, "type_qualifier") | _words(node, "storage_class_specifier"):
        return True
    for declarator in reversed(chain[:-1]):
        if declarator.type == "pointer_declarator":
            return "const" in _words(declarator, "type_qualifier")
        if declarator.type == "reference_declarator":
            return False
    return "const" in _words(node, "type_qualifier")


def _initialiser(
    parsed: Parsed, node: Node, chain: tuple[Node, ...], function: Node | None, constant: frozenset[str]
) -> Refusal | None:
    """A const of static storage is set once, so a value computed at run time would outlive its call."""
    if "constexpr" in _words(node, "type_qualifier") | _words(node, "storage_class_specifier"):
        return None
    value = next((part.child_by_field_name("value") for part in chain if part.type == "init_declarator"), None)
    if value is None:
        return None
    locals_ = _local_names(function) if function is not None else frozenset[str]()
    for part in walk(value):
        called = part.child_by_field_name("function") if part.type == "call_expression" else None
        computed = (
            (called is not None and text_of(called) not in _CONSTANT_CALLS | constant and not _folded(parsed, called))
            or part.type in ("new_expression", "lambda_expression")
            or (part.type == "compound_literal_expression" and text_of(part).startswith("("))
            or (part.type == "identifier" and text_of(part) in locals_)
        )
        if computed:
            return _refuse(parsed, node, f"{text_of(chain[-1])} is computed once and kept", _EACH)
    return None


def _folded(parsed: Parsed, called: Node) -> bool:
    """Whether a call gives a constant of constants. Where it does not, the object guard finds what it would keep."""
    found = _FOLDED.fullmatch("".join(text_of(called).split()))
    return found is not None and _taken(parsed.root).isdisjoint(re.findall(r"\w+", found["limits"] or found[0]))


@lru_cache(maxsize=4)
def _taken(root: Node) -> frozenset[str]:
    """Names by which the region may mean something of its own: all that it does not merely call, or look into."""
    names: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in _NAMES:
            names.add(text_of(node))
        used = node.child_by_field_name(_USED[node.type]) if node.type in _USED else None
        for child in node.children:
            merely = child == used and child.type in (*_NAMES, "qualified_identifier")
            # A using-declaration names what is declared elsewhere.
            if not merely and child.type != "using_declaration":
                stack.append(child)
    return frozenset(names)


def _stray_words(parsed: Parsed) -> Refusal | None:
    """Storage words that the parser could not place: refused unless they are in a device function."""
    for token in parsed.tokens:
        if token.kind is not Kind.NAME or token.text not in ("static", "thread_local", "extern"):
            continue
        node = parsed.root.descendant_for_byte_range(token.start, token.end)
        placed = node is not None and node.type == token.text and node.parent is not None
        if placed and node is not None and node.parent is not None and node.parent.type != "ERROR":
            continue
        function = parsed.function_of(node)
        body = body_of(function) if function is not None else None
        if body is None or token.start < body.start_byte or not parsed.on_device(function):
            return Refusal(
                "source",
                f"this use of {token.text} is not understood",
                token.line,
                "Use a local variable or constexpr in its place.",
            )
    return None


def _host_uses(parsed: Parsed) -> Refusal | None:
    """A device variable's shadow on the host is a mutable global in disguise; only the symbol calls may name it."""
    variables = {name for name, is_constexpr in _device_variables(parsed) if not is_constexpr}
    for index, token in enumerate(parsed.tokens):
        if token.text not in variables or token.kind is not Kind.NAME:
            continue
        before = parsed.tokens[index - 1].text if index else ""
        node = parsed.root.descendant_for_byte_range(token.start, token.end)
        function = parsed.function_of(node)
        if node is None or before == "." or parsed.on_device(function):
            continue
        if function is None:
            if _escapes(parsed, node):
                return Refusal(
                    "source",
                    f"host code may come to use the device variable {token.text} by this",
                    token.line,
                    "Name it in __global__ and __device__ functions, or as the argument of cudaMemcpyToSymbolAsync.",
                )
            continue
        if node.type == "field_identifier":  # behind ->, but not behind --> of a number
            continue
        if before != ":" and token.text in _parameters(function):
            continue
        if not _names_a_symbol(parsed, node):
            return Refusal(
                "source",
                f"host code uses the device variable {token.text}",
                token.line,
                "Use cudaMemcpyToSymbolAsync or cudaGetSymbolAddress, or give the host's own another name.",
            )
    return None


def _escapes(parsed: Parsed, node: Node) -> bool:
    """Whether a name outside of all functions is that of the variable, in a value that host code may take over.

    Such are default members and arguments, template arguments and constants. Variables of the device may have it.
    """
    if node.type != "identifier":
        return False
    current: Node = node
    while (above := current.parent) is not None and above.type not in _SCOPES:
        if above.type in _UNEVALUATED | {"static_assert_declaration", "enumerator"}:
            return False
        if above.type in ("declaration", "field_declaration") and _declares(above, node):
            return False
        if above.type == "declaration" and parsed.head_marks(above, _first_declarator(above)) & _DEVICE_MEMORY:
            return False
        if above.type in _PARAMETERS and _declares(above, node):
            return False
        current = above
    return True


def _declares(declaration: Node, name: Node) -> bool:
    return any(chain[-1] == name for _, chain in declarators(declaration))


def _names_a_symbol(parsed: Parsed, node: Node) -> bool:
    """Whether a name is not evaluated, or tells a symbol call which variable: plainly, for what host code of the
    region may see of it is the shadow. A constructor, an operator or a function of the region's would see that.
    """
    current: Node | None = node
    while current is not None and current.type not in ("compound_statement", "lambda_expression"):
        if current.type in _UNEVALUATED:
            return True
        current = current.parent
    current = node
    while (above := current.parent) is not None and _is_plain(parsed, above, current):
        current = above
    call = above.parent if above is not None and above.type == "argument_list" else None
    called = call.child_by_field_name("function") if call is not None and call.type == "call_expression" else None
    return called is not None and text_of(called).partition("<")[0].removeprefix("::") in SYMBOL_CALLS


def _is_plain(parsed: Parsed, expression: Node, part: Node) -> bool:
    """Whether an expression says which variable, by that part of it, and calls nothing of the region's."""
    if expression.type in ("parenthesized_expression", "qualified_identifier"):
        return True
    if expression.type == "conditional_expression":
        return part != expression.child_by_field_name("condition")
    if expression.type == "cast_expression":
        kind = expression.child_by_field_name("type")
        return kind is not None and text_of(kind).rstrip().endswith("*")
    if expression.type == "subscript_expression":
        return part == expression.child_by_field_name("argument") and not _overloads(parsed)
    return expression.type == "pointer_expression" and not _overloads(parsed)


def _overloads(parsed: Parsed) -> bool:
    """Whether the region gives &, * or [] a meaning of its own."""
    pairs = zip(parsed.tokens, parsed.tokens[1:], strict=False)
    return any(one.text == "operator" and other.text in ("&", "*", "[") for one, other in pairs)


def _device_variables(parsed: Parsed) -> Iterator[tuple[str, bool]]:
    for node in walk(parsed.root):
        if node.type != "declaration":
            continue
        function = parsed.function_of(node)
        specifiers = _words(node, "storage_class_specifier")
        marked = parsed.head_marks(node, _first_declarator(node)) & _DEVICE_MEMORY
        if function is not None:
            marked = marked or (specifiers & {"static"} if parsed.on_device(function) else frozenset())
        if not marked:
            continue
        is_constexpr = "constexpr" in _words(node, "type_qualifier") | specifiers
        for name, chain in declarators(node):
            if not is_function(chain):
                # A local of a device function cannot be named by host code.
                yield name, is_constexpr or function is not None


def _constexpr_functions(root: Node) -> frozenset[str]:
    names: set[str] = set()
    for node in walk(root):
        if node.type == "function_definition" and "constexpr" in _words(node, "type_qualifier"):
            names.update(name for name, chain in declarators(node))
    return frozenset(names)


@lru_cache(maxsize=4)  # asked for each declaration of the same function
def _local_names(function: Node) -> frozenset[str]:
    names = set(_parameters(function))
    for node in walk(function):
        if node.type in ("declaration", "for_range_loop"):
            names.update(name for name, _ in declarators(node))
    return frozenset(names)


@lru_cache(maxsize=4)
def _parameters(function: Node) -> frozenset[str]:
    """Of the function itself: not those of functions that its parameters or its result point to."""
    at, own = function.child_by_field_name("declarator"), None
    while at is not None:
        own = at if at.type.endswith("function_declarator") else own
        at = at.child_by_field_name("declarator") or next(
            (child for child in at.named_children if child.type.endswith("declarator")), None
        )
    listed = own.child_by_field_name("parameters") if own is not None else None
    return frozenset(
        name
        for node in (listed.named_children if listed is not None else ())
        if node.type in _PARAMETERS
        for name, _ in declarators(node)
    )


def _words(node: Node, kind: str) -> frozenset[str]:
    return frozenset(text_of(child) for child in node.children if child.type == kind)


def _first_declarator(node: Node) -> int:
    first = node.child_by_field_name("declarator")
    return first.start_byte if first is not None else node.end_byte


def _anonymous(node: Node) -> bool:
    return any(child.type in ("union_specifier", "struct_specifier", "class_specifier") for child in node.children)


def _refuse(parsed: Parsed, node: Node, reason: str, fix: str) -> Refusal:
    return Refusal("source", reason, parsed.line(node), fix)
