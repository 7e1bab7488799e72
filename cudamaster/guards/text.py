"""Checks on the region's text and tokens: what needs no tree, in taken and untaken branches alike."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from cudamaster.guards.headers import ALLOWED, does_the_task, is_allowed
from cudamaster.guards.lexer import Directive, Kind, Text, Token, words
from cudamaster.guards.names import CONDITION_MACROS, HARNESS, KEYWORDS, OWN_WORDS, RESERVED_MACRO, forbidden
from cudamaster.guards.preprocess import Region
from cudamaster.guards.refusal import Refusal

SIZE_LIMIT = 128 * 1024

_MARKER = re.compile(r"(?:>>|<<)\s*(?:END\s+OF\s+)?CANDIDATE[\s_]+REGION|CANDIDATE[\s_]+REGION\s*(?:>>|<<)", re.I)
_LINE_MARKER = re.compile(r"^[ \t]*#[ \t]*(?:line\b|\d)", re.M)
_DIGRAPH = ("%:", "<%", "%>", "<:", ":>")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DIRECTIVES = words("include define undef if ifdef ifndef elif elifdef elifndef else endif pragma error warning")
_CONDITIONS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef"})
_PRAGMA = re.compile(
    r"unroll\b.*|nounroll|once|(?:GCC )?ivdep|GCC unroll\b.*|pack ?\(.*\)|nv_diag\w*.*|diag_\w+ .*"
    r"|nv_exec_check_disable|hd_warning_disable"
)
_ALLOWED_HEADERS = (
    "Allowed: <cuda_runtime.h>, <cuda_bf16.h>, <cuda_fp16.h>, <mma.h>, <cooperative_groups.h>, "
    "<cuda_pipeline.h>, <cuda/barrier>, cuda/std, and of C++ <cmath>, <algorithm>, <vector> and the like."
)
_STREAMS = frozenset({"cin", "cout", "cerr", "clog"})
_STORAGE = frozenset({"static", "extern", "thread_local", "asm", "__asm__", "__asm", "__attribute__", "operator"})


def _refusal(reason: str, line: int | None, fix: str) -> Refusal:
    return Refusal("source", reason, line, fix)


def read_region(raw: bytes) -> str | Refusal:
    """The text of a region's bytes, with Windows line ends made plain; a Refusal for what is no UTF-8 text."""
    if b"\x00" in raw:
        return _refusal("the file is binary", None, "Give CUDA C++ source as UTF-8 text.")
    try:
        return raw.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _refusal("the file is not UTF-8 text", line, "Save it as UTF-8.")


def check_characters(code: str) -> Refusal | None:
    """Size, characters, and the sequences that would make later readers see other text than the compiler."""
    if not code.strip():
        return _refusal("the region is empty", None, 'Write the kernels and the extern "C" wrapper.')
    if len(code.encode("utf-8", "surrogatepass")) > SIZE_LIMIT:
        return _refusal(
            f"the region is larger than {SIZE_LIMIT} bytes", None, "Use templates and loops in place of copies."
        )
    # The newline is in the alternation for the first pattern only because \s crosses lines.
    for pattern, what, fix in (
        (_CONTROL, "a control character", "Use plain text, tabs and newlines."),
        (_MARKER, "a marker of the candidate region", "Leave the markers to the harness, in strings and comments too."),
        (
            _TRIGRAPH,
            "a trigraph",
            "Write the character that it stands for, such as #, or put a blank between its marks.",
        ),
        (_LINE_MARKER, "a line directive", "Leave line numbers to the compiler, in strings and comments too."),
    ):
        found = pattern.search(code)
        if found:
            line = code.count("\n", 0, found.start()) + 1
            return _refusal(f"the region contains {what}", line, fix)
    return None


def check_lexing(text: Text) -> Refusal | None:
    """Tokens that the guard and a compiler could read differently."""
    for token, after in itertools.zip_longest(text.tokens, text.tokens[1:]):
        if token.kind is Kind.BAD or (token.kind is Kind.PUNCTUATION and token.text in "\"'\\"):
            return _refusal(
                f"an unfinished string, comment or stray {token.text}",
                token.line,
                "Close it with its other end, or remove it.",
            )
        if token.kind is Kind.STRING and token.spliced and "R" in token.text.partition('"')[0]:
            return _refusal(
                "a raw string with a line continuation is not allowed",
                token.line,
                "Write a plain string, or no \\ at its line's end.",
            )
        if after and after.start == token.end and token.text + after.text in _DIGRAPH:
            return _refusal(
                f"the digraph {token.text}{after.text} is not allowed",
                token.line,
                "Write #, a bracket or a brace in its place.",
            )
    return None


def check_directives(
    directives: Sequence[Directive], *, expanded: bool, libraries: Sequence[str] = ()
) -> Refusal | None:
    """Every directive of the region. `expanded` is for preprocessed text, where only pragmas are left.

    `libraries` are those whose headers the task opens.
    """
    for directive in directives:
        name, words = directive.name, [token.text for token in directive.rest]
        refused = None
        if name and name not in _DIRECTIVES:
            fix = (
                "Use a plain #include. " + _ALLOWED_HEADERS
                if "include" in name or name == "import"
                else "Remove it: only #include, #define, #undef, conditionals, #pragma and #error are allowed."
            )
            refused = f"the directive #{name} is not allowed", fix
        elif name == "include":
            refused = _include(directive.rest, libraries)
        elif name in ("define", "undef"):
            refused = _macro(words, name)
        elif name in _CONDITIONS:
            refused = _condition(directive.rest)
        elif name == "pragma" and not _PRAGMA.fullmatch(_spaced(directive.rest)) and words:
            refused = (
                f"#pragma {_spaced(directive.rest)} is not allowed",
                "Use only unroll, GCC ivdep, pack or nv_diag_*.",
            )
        if refused and not (expanded and name != "pragma"):
            return _refusal(refused[0], directive.line, refused[1])
    return None


def check_unexpanded(directives: Sequence[Directive]) -> Refusal | None:
    """Macro bodies when no preprocessor is at hand: they may not hold what the tree is searched for."""
    for directive in directives:
        hidden = next((token for token in directive.rest if token.text in _STORAGE), None)
        if directive.name == "define" and (hidden or _pastes(directive.rest)):
            what = hidden.text if hidden else "##"
            return _refusal(
                f"a macro with {what} cannot be checked without a compiler",
                directive.line,
                "Write what it stands for in its place.",
            )
    return None


def check_entered(region: Region, libraries: Sequence[str] = ()) -> Refusal | None:
    """The files that the region's includes really opened."""
    for path, line in region.entered:
        opened = any(f"/include/{library}/" in path for library in libraries)
        if not path.startswith("<") and not opened and not any(path.endswith(f"/{name}") for name in ALLOWED):
            return _refusal(f"the region opens {path}", line, _ALLOWED_HEADERS)
    return None


def check_names(tokens: Sequence[Token], wrapper: str, libraries: Sequence[str] = ()) -> Refusal | None:
    """Names of the harness, of the system, of libraries that do the task, but for those that the task opens."""
    baseline = wrapper.removesuffix("_optimized")
    own = _defined(tokens)
    for index, token in enumerate(tokens):
        if token.kind is not Kind.NAME or token.text in libraries:
            continue
        if libraries and token.text in _STREAMS:  # elsewhere no header declares them, and they do not link
            return _refusal(f"{token.text} prints and keeps its settings between calls", token.line, "Remove it.")
        before = tokens[index - 1].text if index else ""
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if after == ":" and index + 2 < len(tokens):  # one is that of a label
            after += tokens[index + 2].text
        said = forbidden(token.text, before, after)
        if said and not (after == "(" and token.text in OWN_WORDS & own):
            return _refusal(f"{token.text} {said[0]}", token.line, said[1])
        known = token.text == baseline or token.text.endswith("_reference")
        if known and after == "(" and token.text not in own:
            return _refusal(
                f"{token.text} is the harness's function", token.line, "Compute the result in kernels of the region."
            )
        if token.text == "operator" and after in ("new", "delete"):
            return _refusal("operator new or delete is replaced", token.line, "Use cudaMalloc or std::vector.")
        if token.text == "main" and after == "(":
            return _refusal("the region defines main", token.line, "Give only the kernels and the wrapper.")
    return None


def _defined(tokens: Sequence[Token]) -> frozenset[str]:
    """Names of functions that the region defines, kernels among them: these are not the harness's."""
    names = set()
    called: list[Token | None] = []  # what stands before each bracket that is open
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.text == "(":
            called.append(before if before.kind is Kind.NAME else None)
        elif token.text == ")" and called and (name := called.pop()) is not None and after.text in ("{", "const"):
            names.add(name.text)
    return frozenset(names)


def _include(rest: Sequence[Token], libraries: Sequence[str]) -> tuple[str, str] | None:
    text = "".join(token.text for token in rest)
    if len(rest) == 1 and rest[0].kind is Kind.STRING and text.startswith('"'):
        name = text.strip('"')
    elif text.startswith("<") and text.endswith(">"):
        name = text[1:-1]
    else:
        return "an #include of a computed name is not allowed", "Write the name itself, as #include <cuda_bf16.h>."
    if is_allowed(name, libraries):
        return None
    if does_the_task(name):
        return (
            f"the header {name} belongs to a library that does the task",
            "Write the kernel yourself; mma, wmma, cooperative groups and inline PTX are allowed.",
        )
    return (
        f"the header {name} is not allowed",
        _ALLOWED_HEADERS,
    )


def _macro(words: Sequence[str], directive: str) -> tuple[str, str] | None:
    name = words[0] if words else ""
    if name in KEYWORDS or RESERVED_MACRO.fullmatch(name):
        return (
            f"#{directive} of {name}, which belongs to the language or to CUDA",
            "Choose a name of your own, such as TILE.",
        )
    return None


def _condition(rest: Sequence[Token]) -> tuple[str, str] | None:
    for token in rest:
        reserved = token.text.startswith("_") or HARNESS.fullmatch(token.text) is not None
        if token.kind is Kind.NAME and reserved and not CONDITION_MACROS.fullmatch(token.text):
            return (
                f"a branch on {token.text} is not allowed",
                "Branch only on your own macros, __CUDA_ARCH__, __CUDACC__ or __cplusplus.",
            )
    return None


def _pastes(rest: Sequence[Token]) -> bool:
    return any(a.text == b.text == "#" for a, b in itertools.pairwise(rest))


def _spaced(rest: Sequence[Token]) -> str:
    """Tokens with a blank wherever the author had any between words."""
    pieces = []
    for index, token in enumerate(rest):
        if index and token.start > rest[index - 1].end:
            pieces.append(" ")
        pieces.append(token.text)
    return "".join(pieces)
