"""A parsed view of the region in which CUDA's own syntax is plain C++ again.

The CUDA grammar fails on `struct __align__(16) V`, `__cluster_dims__`, launches of templates and more. So qualifiers,
attributes, asm statements and launch configurations are blanked before parsing and remembered by their position. Blanks
keep every offset and every line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from cudamaster.guards.lexer import Kind, Text, Token, closing, lex, split, words
from cudamaster.guards.preprocess import QUALIFIERS, Region

_MARKS = frozenset({"__global__", "__device__", "__host__", "__shared__", "__constant__", "__managed__"})
_BLANKED = frozenset({*QUALIFIERS, "alignas", "_Alignas", "__restrict", "__extension__", "__inline__", "__inline"})
_WITH_ARGUMENTS = words(
    """
    __launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __align__ __builtin_align__ alignas _Alignas
    """
)
_ATTRIBUTES = frozenset({"__attribute__", "__attribute"})
_ASM = frozenset({"asm", "__asm", "__asm__"})
_HARMLESS = words(
    """
    aligned packed unused maybe_unused always_inline noinline const pure hot cold may_alias noreturn fallthrough
    nodiscard likely unlikely deprecated no_unique_address nothrow visibility
    """
)


@dataclass(frozen=True)
class Attribute:
    """An attribute of the region: its name, and whether it can reach beyond the function or variable it is on."""

    name: str
    harmless: bool
    token: Token


@dataclass(frozen=True)
class Parsed:
    """The syntax tree of the region, and what was blanked to get it."""

    root: Node
    tokens: tuple[Token, ...]
    marks: tuple[tuple[int, str], ...]
    asm: tuple[Token, ...]
    attributes: tuple[Attribute, ...]

    def line(self, node: Node) -> int:
        """The region's line on which a node begins."""
        starts = [token.start for token in self.tokens]
        index = bisect_left(starts, node.start_byte)
        return self.tokens[min(index, len(self.tokens) - 1)].line if self.tokens else 1

    def marks_between(self, start: int, end: int, owner: Node | None = None) -> frozenset[str]:
        """CUDA's execution and memory space qualifiers written between two offsets.

        Those of a lambda that lies in between are its own, unless that lambda is the `owner`.
        """
        found = set()
        for offset, name in self.marks[bisect_left(self.marks, (start,)) : bisect_left(self.marks, (end,))]:
            around = self.root.descendant_for_byte_range(offset, offset + len(name))
            while around is not None and around.type != "lambda_expression":
                around = around.parent
            if around is None or around == owner or around.start_byte < start:
                found.add(name)
        return frozenset(found)

    def head_marks(self, node: Node, end: int) -> frozenset[str]:
        """Qualifiers from the end of what stands before a node up to `end`."""
        return self.marks_between(self.head_start(node), end)

    def head_start(self, node: Node) -> int:
        """Where what belongs to a node begins, blanked qualifiers before it included."""
        current: Node | None = node
        while current is not None:
            before = current.prev_sibling
            if before is not None:
                return before.end_byte
            current = current.parent
        return 0

    def function_of(self, node: Node | None) -> Node | None:
        """The innermost function or lambda around a node, None at namespace or class scope."""
        while node is not None:
            if node.type in ("function_definition", "lambda_expression") and body_of(node) is not None:
                return node
            node = node.parent
        return None

    def on_device(self, function: Node | None) -> bool:
        """Whether a function or lambda exists for the device alone."""
        while function is not None:
            body = body_of(function)
            end = body.start_byte if body is not None else function.end_byte
            start = function.start_byte if function.type == "lambda_expression" else self.head_start(function)
            marks = self.marks_between(start, end, function)
            if "__host__" in marks:
                return False
            if marks & {"__global__", "__device__"}:
                return True
            if function.type != "lambda_expression":
                return False
            function = self.function_of(function.parent)
        return False


def parse(region: Region) -> Parsed:
    """The region's tree. Errors of the parser stay in it as ERROR nodes."""
    text = lex(region.text, region.lines)
    directives, code = split(text.tokens)
    blanks = [(directive.start, directive.end) for directive in directives]
    marks: list[tuple[int, str]] = []
    asm: list[Token] = []
    attributes: list[Attribute] = []
    index = 0
    while index < len(code):
        token = code[index]
        last = index
        if token.text in _ASM and token.kind is Kind.NAME:
            asm.append(token)
            last = _after_words(code, index)
            blanks.append((token.start, code[last].end))
        elif token.text in _ATTRIBUTES:
            last = closing(code, index + 1) if _is(code, index + 1, "(") else index
            attributes.extend(_attributes(code[index + 2 : last]))
            blanks.append((token.start, code[last].end))
        elif _is(code, index, "[") and _is(code, index + 1, "[") and _names(code, index + 2):
            last = closing(code, index)
            attributes.extend(_attributes(code[index + 1 : last]))
            blanks.append((token.start, code[last].end))
        elif token.text in _BLANKED:
            if token.text in _WITH_ARGUMENTS:
                last = _after_words(code, index)
            elif token.text in _MARKS:
                marks.append((token.start, token.text))
            blanks.append((token.start, code[last].end))
        elif _launches(code, index):
            last = _launch_end(code, index)
            blanks.append((token.start, code[last].end))
        index = last + 1
    tree = Parser(Language(tree_sitter_cuda.language())).parse(_blanked(text, blanks))
    return Parsed(tree.root_node, code, tuple(marks), tuple(asm), tuple(attributes))


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, without recursion: regions can nest deeper than Python's stack."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def depth(root: Node) -> int:
    """How deep a tree nests."""
    cursor = root.walk()
    level = deepest = 0
    while True:
        deepest = max(deepest, level)
        if cursor.goto_first_child():
            level += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return deepest
            level -= 1


def body_of(function: Node) -> Node | None:
    """The braces of a function or lambda; None for `= default`, `= delete` and what is no function."""
    body = function.child_by_field_name("body")
    if body is None:
        body = next((child for child in function.children if child.type == "try_statement"), None)
    return body


def text_of(node: Node) -> str:
    """A node's own text."""
    return (node.text or b"").decode("ascii", "replace")


def _attributes(tokens: Sequence[Token]) -> list[Attribute]:
    found = []
    depth = 0
    base = 1  # the inner bracket of (( )) and [[ ]]
    for index, token in enumerate(tokens):
        if token.text in "([":
            depth += 1
        elif token.text in ")]":
            depth -= 1
        elif token.kind is Kind.NAME and depth == base and not _is(tokens, index + 1, ":"):
            found.append(Attribute(token.text, token.text.strip("_") in _HARMLESS, token))
    return found


def _after_words(code: Sequence[Token], index: int) -> int:
    """Index of the bracket that ends `asm volatile (...)` or `__launch_bounds__(...)`; of the word if none follows."""
    after = index + 1
    while after < len(code) and code[after].text in ("volatile", "__volatile__", "inline", "goto"):
        after += 1
    return closing(code, after) if _is(code, after, "(") else index


def _launches(code: Sequence[Token], index: int) -> bool:
    return all(
        _is(code, index + step, "<") and code[index + step].start == code[index].start + step for step in range(3)
    )


def _launch_end(code: Sequence[Token], index: int) -> int:
    depth = 0
    for at in range(index + 3, len(code)):
        text = code[at].text if code[at].kind is Kind.PUNCTUATION else ""
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if depth < 0 or text == ";" or _launches(code, at):
            break
        if depth == 0 and all(_is(code, at + step, ">") for step in range(3)) and _is(code, at + 3, "("):
            return at + 2
    return index + 2


def _is(code: Sequence[Token], index: int, text: str) -> bool:
    return 0 <= index < len(code) and code[index].text == text


def _names(code: Sequence[Token], index: int) -> bool:
    return index < len(code) and code[index].kind is Kind.NAME


def _blanked(text: Text, blanks: Sequence[tuple[int, int]]) -> bytes:
    characters = [character if ord(character) < 128 else "_" for character in text.spliced]
    for start, end in blanks:
        for at in range(start, end):
            if characters[at] != "\n":
                characters[at] = " "
    return "".join(characters).encode("ascii")
