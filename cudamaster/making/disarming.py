"""Text that checks CUDA's errors, without its prints and exits: no candidate may have these.

Only whole statements are taken out, so that all else stays as it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from cudamaster.guards.lexer import Kind, Token, closing
from cudamaster.guards.names import forbidden
from cudamaster.making.kept_work import NO_WORK

_EXITS = frozenset({"exit", "_exit", "_Exit", "quick_exit", "abort", "terminate", "assert", "throw"})
_STREAMS = frozenset({"cerr", "cout", "clog"})
_PRINTS = frozenset({"printf", "fprintf", "puts", "fputs", "putchar", "fputc", "perror", "fflush", "fwrite"})
_HEADS = frozenset({"if", "while", "for", "switch"})
_BREAKS = frozenset({"{", "}", ";"})
_ERRORS = frozenset({"cudaError_t", "cudaError", "cudaSuccess", *NO_WORK})
_DECLARE = frozenset({"cudaError_t", "cudaError", "auto", "const"})
_PLAIN_WORDS = frozenset({"do", "while", "if", "else", "const", "auto", "false", "true", "nullptr"})


def prints(tokens: Sequence[Token]) -> bool:
    """Whether a text holds what no candidate may: it prints, exits and the like."""
    texts = ["", *(token.text for token in tokens), ""]
    return any(
        forbidden(text, before, after) is not None or text in _EXITS or text in _STREAMS
        for before, text, after in zip(texts, texts[1:], texts[2:], strict=False)
    )


def without_prints(body: Sequence[Token]) -> list[Token]:
    """The tokens of a body without the statements that do nothing but print or exit."""
    gone: set[int] = set()
    reset: range | None = None  # a reset of the device goes with the exit after it
    for start, end in _statements(body):
        texts = [token.text for token in body[start:end]]
        if texts[:2] == ["cudaDeviceReset", "("]:
            reset = _with_semicolon(body, start, end)
        elif _only_prints(texts):
            gone.update(_with_semicolon(body, start, end))
            if reset is not None and reset.stop == start and _EXITS & set(texts):
                gone.update(reset)
    return [token for at, token in enumerate(body) if at not in gone]


def only_checks(body: Sequence[Token], known: Collection[str]) -> bool:
    """Whether a body without prints only looks at errors: at names that are `known` and at variables of its own.

    It then calls nothing beyond CUDA's functions that say errors, and changes nothing but its own variables.
    """
    own = {*known, *_locals(body)}
    padded = ["", "", *(token.text for token in body), ""]
    for token, two, before, after in zip(body, padded, padded[1:], padded[3:], strict=False):
        if token.kind is Kind.NAME:
            is_called = after == "(" and token.text not in ("if", "while", *NO_WORK)
            if is_called or token.text not in own | _ERRORS | _PLAIN_WORDS:
                return False
        elif token.text == "=" and after != "=" and before not in ("=", "!"):
            if two not in _DECLARE:
                return False
        elif token.kind is Kind.PUNCTUATION and token.text not in "{}();=!&|":
            return False
    return True


def checked(body: Sequence[Token], parameters: Collection[str]) -> list[str]:
    """The parameters of a macro whose value is an error: `e = (P)`, `(P) != cudaSuccess`, `if (P)` and the like."""
    found = []
    for at, token in enumerate(body):
        if token.text not in parameters:
            continue
        first, last = at, at
        while first > 0 and last + 1 < len(body) and (body[first - 1].text, body[last + 1].text) == ("(", ")"):
            first, last = first - 1, last + 1
        before = body[first - 1].text if first else ""
        after = [each.text for each in body[last + 1 : last + 3]]
        if before in ("=", "if") or after in (["!", "="], ["=", "="]):
            found.append(token.text)
    return found


def macro_body(body: Sequence[Token], parameters: Collection[str]) -> str | None:
    """What a macro that checks errors becomes: its work alone. None where that cannot be told."""
    left = without_prints(body)
    if prints(left):  # an expression such as `(P) == cudaSuccess ? ... : exit(1)`
        values = set(checked(body, parameters)) if not _BREAKS & {token.text for token in body} else set()
        return f"((void)({values.pop()}))" if len(values) == 1 else None
    used = [token.text for token in left if token.text in parameters]
    asserted = set(checked(body, parameters))
    if only_checks(left, parameters) and not (left and left[0].text == "("):
        if not used and len(asserted) < 2:
            return f"((void)({asserted.pop()}))" if asserted else "((void)0)"
        if len(used) == 1 and used == checked(left, parameters):
            return f"((void)({used[0]}))"
    ends = [token.end for token in left]
    return "".join(
        (" " if before != token.start else "") + token.text for before, token in zip([-1, *ends], left, strict=False)
    ).strip()


def _statements(body: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Where each plain statement begins, and where its semicolon is."""
    at = 0
    while at < len(body):
        text = body[at].text
        if text in _HEADS and at + 1 < len(body) and body[at + 1].text == "(":
            at = closing(body, at + 1) + 1
        elif text in _BREAKS or text in ("else", "do", ")") or _opens_value(body, at):
            at += 1
        else:
            end = at
            while end < len(body) and body[end].text not in (";", "}"):
                end = closing(body, end) + 1 if body[end].text in ("(", "[", "{") else end + 1
            yield at, end
            at = end


def _opens_value(body: Sequence[Token], at: int) -> bool:
    """Whether a block whose value is used begins here: `({`."""
    return body[at].text == "(" and at + 1 < len(body) and body[at + 1].text == "{"


def _with_semicolon(body: Sequence[Token], start: int, end: int) -> range:
    """A statement with its semicolon, where no `if` or `else` needs it."""
    is_free = start > 0 and body[start - 1].text in _BREAKS and end < len(body) and body[end].text == ";"
    return range(start, end + 1 if is_free else end)


def _only_prints(texts: Sequence[str]) -> bool:
    """Whether a statement is a call that prints or exits, and nothing else."""
    rest = list(texts[3:] if texts[:3] == ["(", "void", ")"] else texts)
    while rest[:1] in ([":"], ["std"]):
        rest.pop(0)
    if rest and (rest[0] == "throw" or rest[0] in _STREAMS):
        return True
    if not rest or rest[0] not in _PRINTS | _EXITS or rest[1:2] != ["("]:
        return False
    depth = 0
    for at, text in enumerate(rest[1:], 1):
        depth += (text == "(") - (text == ")")
        if depth == 0:
            return at == len(rest) - 1
    return False


def _locals(body: Sequence[Token]) -> set[str]:
    """Variables that a body declares to hold an error."""
    return {name.text for kind, name in pairwise(body)
            if kind.text in _DECLARE and name.kind is Kind.NAME and name.text not in _DECLARE}  # fmt: skip
