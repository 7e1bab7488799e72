"""Turns CUDA C++ into C++ that g++ compiles against the headers in `include/`.

Only what no macro can do is rewritten: kernel launches `k<<<grid, block, shared, stream>>>(arguments)`,
`extern __shared__` arrays, whose place in memory is known at run time only, and `static` or `alignas` beside
`__shared__`. Empty loops, which wait for another thread's store, are made to let other threads run. Kernels handed to
cudaLaunchKernel as `(void*)kernel` lose the cast. The debug build also turns each `__shared__` variable into an
exactly sized allocation, because AddressSanitizer does not look at thread-local ones.
The attribute `noinline` is dropped. `__grid_constant__` parameters beside tensor maps become references to the one
argument of the launch.
Inline PTX becomes C++ first (ptx/), and `__cluster_dims__` a statement.
The number of lines stays as it is, so that a compiler error names the line of the source that was given.

Launch arguments convert to the parameters' types as in a call. Where a template's arguments are left to be deduced
or a default argument is used, the parameters are unknown here: a literal 0 stays an int, a braced list is an error.

What this device cannot execute raises `Unsupported`. Source text is not preprocessed here: a construct inside an
inactive `#if` counts as used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import tree_sitter
import tree_sitter_cuda

from cudamaster.devices.cpu import ptx
from cudamaster.devices.cpu.ptx import PtxError
from cudamaster.devices.cpu.unsupported import Unsupported, code_only, refuse_foreign_constructs

__all__ = ["PtxError", "Unsupported", "rewrite"]

_NAMESPACE = "::cudamaster_cpu"
# By the place of the kernel among the arguments.
_KERNEL_TAKING_CALLS = {b"cudaLaunchKernel": 0, b"cudaLaunchCooperativeKernel": 0, b"cudaLaunchKernelExC": 1}
_LOOPS = {"while_statement", "do_statement", "for_statement"}
_PARTS_OF_TYPES = {"const", "volatile", "struct", "class", "union", "typename", "__restrict__"}
# Under these names an observed build sees no access (include/cudamaster_cpu/library.h).
_BUILT_IN = re.compile(r"\b__builtin_(mem(?:cpy|move|set|cmp))\b")
_SHARED_WORDS = {b"extern", b"__shared__", b"static"}


@dataclass(frozen=True)
class _Edit:
    """Bytes [start, end) of the source that become `text`, which has as many line ends."""

    start: int
    end: int
    text: bytes


@dataclass
class _Rewriter:
    """A text that is being rewritten: its bytes, and the edits so far."""

    source: bytes
    exact_shared: bool
    first_line: int = 1
    edits: list[_Edit] = field(default_factory=list)

    def run(self) -> bytes:
        """The text with all edits applied."""
        # The grammar does not know __align__; alignas of the same length it does.
        parsed = _parser().parse(re.sub(rb"\b__align__(?=\s*\()", b"alignas  ", self.source))
        for node in _walk(parsed.root_node):
            if node.type == "call_expression":
                self._call(node)
            elif node.type == "declaration":
                self._declaration(node)
            elif node.type == "assignment_expression":
                self._node_kernel(node)
            elif node.type in _LOOPS:
                self._loop(node)
            elif node.type == "preproc_arg":
                self._macro_body(node)
        return self._apply()

    def _text(self, node: tree_sitter.Node) -> bytes:
        return self.source[node.start_byte : node.end_byte]

    def _line(self, node: tree_sitter.Node) -> int:
        return node.start_point[0] + self.first_line

    def _replace(self, node: tree_sitter.Node, text: bytes) -> None:
        missing = self._text(node).count(b"\n") - text.count(b"\n")
        self.edits.append(_Edit(node.start_byte, node.end_byte, text + b"\n" * missing))

    def _apply(self) -> bytes:
        parts: list[bytes] = []
        end = 0
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            if edit.start < end:
                raise Unsupported("kernel launch inside another rewritten construct", self._line_of(edit.start))
            parts += [self.source[end : edit.start], edit.text]
            end = edit.end
        return b"".join([*parts, self.source[end:]])

    def _line_of(self, offset: int) -> int:
        return self.source.count(b"\n", 0, offset) + self.first_line

    def _call(self, node: tree_sitter.Node) -> None:
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return
        launch = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
        if launch is not None:
            self._launch(node, callee, launch, arguments)
        elif self._text(callee) in _KERNEL_TAKING_CALLS:
            self._drop_cast(arguments, _KERNEL_TAKING_CALLS[self._text(callee)])

    def _launch(
        self,
        node: tree_sitter.Node,
        callee: tree_sitter.Node,
        launch: tree_sitter.Node,
        arguments: tree_sitter.Node,
    ) -> None:
        if _in_device_code(node):
            raise Unsupported("kernel launch in device code (dynamic parallelism)", self._line(node))
        start = node.start_byte
        # `(void)k<<<...>>>()` parses with the cast as part of the callee.
        while callee.type == "cast_expression":
            value = callee.child_by_field_name("value")
            assert value is not None
            callee, start = value, value.start_byte
        kernel = b" ".join(self._text(callee).split())
        config = self.source[launch.children[0].end_byte : launch.children[-1].start_byte]
        name = kernel.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        head = (
            b'%s::launch("%s", %s::Config(%s), '
            b"[=](auto&... cm_values) { %s(cm_values...); }, "
            b"[=](auto cm_tag) -> decltype(%s::one_function(cm_tag, %s)) "
            b"{ return %s::one_function(cm_tag, %s); })"
        )
        space = _NAMESPACE.encode()
        text = head % (space, name, space, config, kernel, space, kernel, space, kernel)
        text += b"(" + self._arguments(arguments) + b")"
        missing = self.source[start : node.end_byte].count(b"\n") - text.count(b"\n")
        if missing < 0:
            raise Unsupported("kernel launch that cannot be kept on its lines", self._line(node))
        self.edits.append(_Edit(start, node.end_byte, text + b"\n" * missing))

    def _arguments(self, arguments: tree_sitter.Node) -> bytes:
        """The argument list without its parentheses; NULL becomes a pointer where its type matters."""
        parts: list[bytes] = []
        end = arguments.start_byte + 1
        for child in arguments.named_children:
            if child.type == "null":
                parts += [self.source[end : child.start_byte], b"nullptr"]
                end = child.end_byte
        return b"".join([*parts, self.source[end : arguments.end_byte - 1]])

    def _loop(self, node: tree_sitter.Node) -> None:
        """An empty loop of device code waits for another thread's store: it has to let that thread run."""
        body = node.child_by_field_name("body")
        if body is None or node.child_by_field_name("update") is not None or not _in_device_code(node):
            return
        block = body.type == "compound_statement"
        if not block and self._text(body) != b";":
            return
        if any(child.type != "comment" for child in body.named_children):
            return
        at = body.start_byte + block
        self.edits.append(_Edit(at, at, _NAMESPACE.encode() + b"::spun()" + b";" * block))

    def _node_kernel(self, node: tree_sitter.Node) -> None:
        """`parameters.func = (void*)kernel` of a graph's node: the same."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and re.search(rb"(\.|->)\s*func$", self._text(left)):
            self._uncast(right)

    def _drop_cast(self, arguments: tree_sitter.Node, at: int) -> None:
        """Kernels handed over as `(void*)kernel` keep their type: the launch has to know the parameters."""
        if len(arguments.named_children) > at:
            self._uncast(arguments.named_children[at])

    def _uncast(self, first: tree_sitter.Node) -> None:
        inner = first
        if first.type == "cast_expression":
            value = first.child_by_field_name("value")
            inner = value if value is not None else first
        elif first.type == "call_expression" and re.match(rb"(reinterpret|static|const)_cast\b", self._text(first)):
            listed = first.child_by_field_name("arguments")
            if listed is not None and listed.named_child_count == 1:
                inner = listed.named_children[0]
        if inner is not first:
            self._replace(first, self._text(inner))

    def _declaration(self, node: tree_sitter.Node) -> None:
        words = {self._text(child) for child in node.children}
        if b"__shared__" not in words:
            return
        dynamic = b"extern" in words
        in_function = _inside(node, "compound_statement")
        if not dynamic and not (self.exact_shared and in_function):
            self._plain_shared(node)
            return
        if node.has_error:
            raise Unsupported("__shared__ declaration that cannot be read", self._line(node))
        declarators = node.children_by_field_name("declarator")
        aligned = [c for c in node.children if c.type == "alignas_qualifier" or self._is_alignment(c)]
        listed = {(c.start_byte, c.end_byte) for c in [*declarators, *aligned]}
        type_name = b" ".join(
            self._text(child)
            for child in node.children
            if (child.start_byte, child.end_byte) not in listed
            and self._text(child) not in _SHARED_WORDS
            and child.type not in {",", ";", "comment"}
        )
        type_name = b" ".join(type_name.split())
        alignment = b"".join(re.findall(rb"\(.*\)", b" ".join(self._text(aligned[0]).split()))) if aligned else b"1"
        lines = [
            self._dynamic_array(node, type_name, declarator, in_function)
            if dynamic
            else self._exact_variable(type_name, declarator, alignment)
            for declarator in declarators
        ]
        self._replace(node, b" ".join(line for line in lines if line))

    def _plain_shared(self, node: tree_sitter.Node) -> None:
        """`__shared__` becomes `static thread_local`, beside which C++ takes no second static and no alignas."""
        for child in node.children:
            text = self._text(child)
            if text == b"static":
                self._replace(child, b"")
            elif self._is_alignment(child) and text.startswith(b"alignas"):
                self._replace(child, b"__align__" + text.removeprefix(b"alignas"))

    def _is_alignment(self, node: tree_sitter.Node) -> bool:
        return node.type == "type_qualifier" and self._text(node).startswith((b"alignas", b"__align__"))

    def _named(self, declarator: tree_sitter.Node, name: bytes | None) -> tuple[bytes, bytes]:
        """The declarator with its identifier replaced by `name` (kept where None), and the identifier."""
        for node in _walk(declarator):
            if node.type == "identifier":
                own = self._text(node)
                head = self.source[declarator.start_byte : node.start_byte]
                tail = self.source[node.end_byte : declarator.end_byte]
                return head + (own if name is None else name) + tail, own
        raise Unsupported("__shared__ declaration that cannot be read", self._line(declarator))

    def _dynamic_array(
        self, node: tree_sitter.Node, type_name: bytes, declarator: tree_sitter.Node, in_function: bool
    ) -> bytes:
        reference, name = self._named(declarator, b"")
        cast = b"*reinterpret_cast<%s (*)%s>(%s::dynamic_shared())" % (type_name, reference, _NAMESPACE.encode())
        if not reference.lstrip().startswith(b"["):
            raise Unsupported("extern __shared__ variable that is no array", self._line(node))
        if in_function:
            return b"%s (&%s)%s = %s;" % (type_name, name, reference, cast)
        root = node
        while root.parent is not None:
            root = root.parent
        for use in _walk(root):
            if use.type == "identifier" and self._text(use) == name and use.start_byte >= node.end_byte:
                self.edits.append(_Edit(use.start_byte, use.end_byte, b"(" + cast + b")"))
        return b""

    def _exact_variable(self, type_name: bytes, declarator: tree_sitter.Node, alignment: bytes) -> bytes:
        if declarator.type == "init_declarator":
            raise Unsupported("__shared__ variable with an initial value", self._line(declarator))
        _, name = self._named(declarator, None)
        alias, _ = self._named(declarator, name + b"_cm_type")
        return b"typedef %s %s; static char %s_cm_key; auto& %s = %s::exact_shared<%s_cm_type>(&%s_cm_key, %s);" % (
            type_name,
            alias,
            name,
            name,
            _NAMESPACE.encode(),
            name,
            name,
            alignment,
        )

    def _macro_body(self, node: tree_sitter.Node) -> None:
        """A macro that launches or declares dynamic shared memory: its body is rewritten as if it were a function's."""
        body = self._text(node)
        if b"<<<" not in body and b"__shared__" not in body:
            return
        flat = body.replace(b"\\\n", b" \n")
        head, tail = b"void cm_macro() {", b";}"
        inner = _Rewriter(head + flat + tail, self.exact_shared, self._line(node))
        text = inner.run()[len(head) : -len(tail)]
        text = re.sub(rb"[ ]?\n", b" \\\\\n", text)
        self._replace(node, text)


def _in_one_place(source: str) -> str:
    """`__grid_constant__` parameters become references: their address is the same in all threads, and of none of them.

    So a tensor map that lies in a thread's own memory, as every other parameter does, is told from one that may be
    used. Texts without tensor maps stay as they are: nothing in them asks where a parameter lies.
    """
    code = code_only(source)
    if "CUtensorMap" not in code:
        return source
    places = [_name_of_parameter(code, found.end()) for found in re.finditer(r"\b__grid_constant__\b", code)]
    for place in sorted({place for place in places if place is not None}, reverse=True):
        source = f"{source[:place]}&{source[place:]}"
    return source


def _name_of_parameter(code: str, start: int) -> int | None:
    """Where a parameter's name begins, or its type ends where it has none; `start` is inside of its declaration."""
    depth = 0
    for end in range(start, len(code)):
        if depth == 0 and code[end] in ",)=":
            break
        depth += (code[end] in "<([{") - (code[end] in ">)]}")
    else:
        return None
    names = list(re.finditer(r"\b[A-Za-z_]\w*\b", code[start:end]))
    names = [name for name in names if name[0] not in _PARTS_OF_TYPES]
    if not names or "&" in code[start:end]:
        return None
    last = names[-1]
    behind = code[start : start + last.start()].rstrip()
    named = len(names) > 1 and not behind.endswith(("::", "<", ",")) and not code[start + last.end() : end].strip()
    return start + last.start() if named else end


def _walk(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(top.children))


def _inside(node: tree_sitter.Node, kind: str) -> bool:
    above = node.parent
    while above is not None:
        if above.type == kind:
            return True
        above = above.parent
    return False


def _in_device_code(node: tree_sitter.Node) -> bool:
    above = node.parent
    while above is not None:
        if above.type == "function_definition":
            words = {child.type for child in above.children}
            return "__global__" in words or ("__device__" in words and "__host__" not in words)
        above = above.parent
    return False


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _with_cluster_dims(source: str) -> str:
    """`__cluster_dims__(2)` of a kernel becomes its first statement, for no attribute of C++ reaches a launch."""
    code, made, end = code_only(source), [], 0
    for found in re.finditer(r"\b__cluster_dims__\s*(?=\()", code):
        closing = _closing(code, found.end())
        body = re.compile(r"[{;]").search(code, closing)
        if body is None or body.group() == ";":
            raise Unsupported("__cluster_dims__ away from the kernel's body", code.count("\n", 0, found.start()) + 1)
        shape = " ".join(source[found.end() : closing].split())
        written = source[found.start() : closing]
        made += [source[end : found.start()], re.sub(r"[^\n\\]", " ", written), source[closing : body.end()]]
        made.append(f" {_NAMESPACE}::cluster_dims{shape};")
        end = body.end()
    return "".join([*made, source[end:]])


def _closing(code: str, opening: int) -> int:
    """Behind the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at + 1
    raise Unsupported("__cluster_dims__ that does not end", code.count("\n", 0, opening) + 1)


def _inlined(source: str) -> str:
    """`__attribute__((noinline))` becomes an attribute without effect, as `__noinline__` is one here.

    A compiler makes no call-out for a structure that is read to be passed by value: only inlined functions show it.
    """
    code, made, end = code_only(source), [], 0
    for found in re.finditer(r"(?:__attribute__|\[\[)[^;{}]*?\bnoinline\b", code):
        at = found.end() - len("noinline")
        made += [source[end:at], "unused"]
        end = found.end()
    return "".join([*made, source[end:]])


def rewrite(source: str, *, exact_shared: bool = False) -> str:
    """The source as plain C++ with the same number of lines.

    `exact_shared` gives every `__shared__` variable inside a function an allocation of its own, as the debug
    build needs. Raises Unsupported for a construct that this device cannot execute, PtxError for inline PTX with a
    mistake.
    """
    refuse_foreign_constructs(source)
    source = _BUILT_IN.sub(r"\1", source)
    text = ptx.translated(_in_one_place(_inlined(source)))
    text = _Rewriter(_with_cluster_dims(text).encode(), exact_shared).run().decode()
    refuse_foreign_constructs(text, launches=True)
    return text
