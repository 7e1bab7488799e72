"""Whether a rewritten file still does all that it did: its launches, and its calls of the CUDA runtime."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from cudamaster.core.errors import UsageError
from cudamaster.guards.grammar import body_of
from cudamaster.guards.lexer import Kind, Token
from cudamaster.making.flattening import Flat
from cudamaster.making.reading import Function, Source, read

# A reset before an exit goes with it; any other one the source guard refuses.
NO_WORK = frozenset(
    {"cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString", "cudaGetErrorName", "cudaDeviceReset"}
)
_RUNTIME = re.compile(r"cu(?:da)?[A-Z]\w*")


def must_keep_work(source: Source, wrapper: str, rewritten: Flat, compiler: str) -> None:
    """Raises UsageError with the first line whose launch or call the rewritten text lacks."""
    after = read(rewritten, compiler)
    reached = after.reachable([wrapper])
    left = Counter((function, what) for function, what, _ in _work(after, wrapper))
    lost = []
    for function, what, line in _work(source, wrapper):
        left[function, what] -= 1
        if left[function, what] < 0:
            lost.append((function, what, line))
    # A function that nothing calls any more is no cause: its call is.
    for function, what, line in sorted(lost, key=lambda each: each[0] not in reached)[:1]:
        raise UsageError(
            f"{source.flat.place(line)}: {function} would lose its {what} with the prints and exits around it.",
            "Make this call outside the macro or function that checks errors, or let that neither print nor exit.",
        )


def _work(source: Source, wrapper: str) -> Iterator[tuple[str, str, int]]:
    """Function, what it does, and the line, of all that the wrapper reaches."""
    direct = {function.name for function in source.functions if any(_own_work(source, function))}
    working = {function.name for function in source.functions if source.reachable([function.name]) & direct}
    reached = source.reachable([wrapper])
    for function in source.functions:
        if function.name in reached:
            for what, line in _own_work(source, function):
                yield function.name, what, line
            for token in _body(source, function):
                if token.text in working and token.kind is Kind.NAME:
                    yield function.name, f"call of {token.text}", token.line


def _own_work(source: Source, function: Function) -> Iterator[tuple[str, int]]:
    tokens = _body(source, function)
    for at, token in enumerate(tokens[:-1]):
        after = tokens[at + 1].text
        if token.kind is Kind.NAME and _RUNTIME.fullmatch(token.text) and after in ("(", "<"):
            if token.text not in NO_WORK:
                yield f"call of {token.text}", token.line
        elif _is_launch(tokens[at : at + 3]):
            named = next((each.text for each in reversed(tokens[:at]) if each.kind is Kind.NAME), "a kernel")
            yield f"launch of {named}", token.line


def _is_launch(three: Sequence[Token]) -> bool:
    return [token.text for token in three] == ["<"] * 3 and three[2].start == three[0].start + 2


def _body(source: Source, function: Function) -> Sequence[Token]:
    body = body_of(function.node)
    return [] if body is None else source.tokens_in(body.start_byte, body.end_byte)
