"""The benchmark's own kernels, which a model that is tested on them may not have seen: baselines and playbook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from cudamaster.core import resources
from cudamaster.guards.lexer import closing, lex
from cudamaster.training.corpus.near import Index
from cudamaster.training.shingles import shingles

_FOLDERS = ("fp32", "bf16", "fp16")


class HeldOut:
    """Tells which code is a near copy of a benchmark's kernel."""

    def __init__(self, kernels: Iterable[tuple[str, str]]) -> None:
        """`kernels` are names and texts of kernels."""
        self._index = Index()
        for name, text in kernels:
            self._index.add(name, shingles(text))

    def copied_by(self, functions: Iterable[str]) -> str | None:
        """The name of a kernel that one of these functions is a near copy of; None if there is none."""
        for function in functions:
            if (found := self._index.nearest(shingles(function))) is not None:
                return found[0]
        return None


@cache
def of_benchmark() -> HeldOut:
    """The kernels of bench/ and of the playbook."""
    bench, playbook = resources.bench(), resources.package() / "playbook"
    files = [(bench, path) for folder in _FOLDERS for path in sorted((bench / folder).glob("*.cu"))]
    files += [(playbook, path) for path in sorted(playbook.rglob("*.cu"))]
    found = []
    for root, path in files:
        name = f"{root.name}/{path.relative_to(root).as_posix()}"
        found += [(name, kernel) for kernel in kernels_of(path.read_text(encoding="utf-8"))]
    return HeldOut(found)


def kernels_of(code: str) -> Iterator[str]:
    """The texts of the kernels that a code defines, from `__global__` to the closing brace."""
    text = lex(code)
    for at, token in enumerate(text.tokens):
        if token.text != "__global__":
            continue
        opens = next((index for index in range(at, len(text.tokens)) if text.tokens[index].text in ("{", ";")), at)
        if text.tokens[opens].text == "{":
            yield text.spliced[token.start : text.tokens[closing(text.tokens, opens)].end]
