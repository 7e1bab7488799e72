"""Context for an instruction: the passages of a documentation that answer it best, by BM25.

BM25 is that of Robertson and Zaragoza (The Probabilistic Relevance Framework, 2009) with k1 = 1.5 and b = 0.75. It is
these few lines over NumPy: the libraries for it bring more dependencies than code that they would save. The paper names
no method and no source of its documents.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cudamaster.core.errors import UsageError
from cudamaster.guards.lexer import words

SUFFIXES = (".md", ".rst", ".txt", ".html", ".htm")
LONGEST = 1_200  # characters of a passage
_SHORTEST = 80
_LARGEST = 8 << 20  # bytes of a file
_K1, _B = 1.5, 0.75
_WORD = re.compile(r"[A-Za-z]+[0-9]*|[0-9]+[A-Za-z]+")
_NAME = re.compile(r"[A-Za-z_]\w{2,}")
_COMMON = words(
    """
    a an and are as at be by for from has have if in into is it its of on or that the this to was which with will can
    each one two all not use used using write kernel cuda function code int float void const return
    """
)
_HEADING = re.compile(r"#{1,6}[ \t]+\S|[^\n]{3,}\n[=\-~^\"]{3,}[ \t]*$", re.M)


@dataclass(frozen=True)
class Passage:
    """A passage of a document: its path below the folder, its lines from 1 in the text of the file, and the text."""

    path: str
    first: int
    last: int
    text: str


class BM25:
    """Texts that can be asked which of them a query fits best."""

    def __init__(self, texts: Sequence[str]) -> None:
        counted = [Counter(words_of(text)) for text in texts]
        lengths = np.array([sum(each.values()) for each in counted], dtype=np.float64)
        norm = _K1 * (1 - _B + _B * lengths / max(1.0, float(lengths.mean() if len(texts) else 1.0)))
        self._number = len(texts)
        postings: dict[str, list[tuple[int, int]]] = {}
        for place, counts in enumerate(counted):
            for word, count in counts.items():
                postings.setdefault(word, []).append((place, count))
        self._weights: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = {}
        for word, found in postings.items():
            places = np.array([place for place, _ in found], dtype=np.int64)
            counts_of = np.array([count for _, count in found], dtype=np.float64)
            rare = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            self._weights[word] = (places, rare * counts_of * (_K1 + 1) / (counts_of + norm[places]))

    def best(self, query: str, most: int) -> list[tuple[int, float]]:
        """The places of the texts that fit best and their scores, the best first; none that shares no word."""
        scores = np.zeros(self._number)
        for word in set(words_of(query)):
            if word in self._weights:
                places, weights = self._weights[word]
                scores[places] += weights
        order = np.argsort(-scores, kind="stable")[:most]
        return [(int(place), float(scores[place])) for place in order if scores[place] > 0]


def words_of(text: str) -> Iterator[str]:
    """The words of a text that are looked up: names as they are, and the words that they are made of."""
    for name in _NAME.findall(text):
        whole = name.lower()
        parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+[0-9]*|[A-Z]+(?![a-z])[0-9]*", name)]
        for word in dict.fromkeys((whole, *parts)):
            if len(word) > 2 and word not in _COMMON:
                yield _stem(word)


def passages(folder: Path) -> list[Passage]:
    """The passages of all documents of a folder, cut at headings and paragraphs. Raises UsageError if there is none."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", f"Name a folder with {', '.join(SUFFIXES)} files.")
    found: list[Passage] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        if hidden or path.suffix.lower() not in SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        raw = path.read_bytes()
        if len(raw) > _LARGEST or b"\0" in raw:
            continue
        text = raw.decode("utf-8", "replace")
        if path.suffix.lower() in (".html", ".htm"):
            text = _text_of(text)
        name = inside.as_posix().encode("utf-8", "backslashreplace").decode()
        found += [Passage(name, *each) for each in _cut(text)]
    if not found:
        raise UsageError(f"There is no documentation in {folder}.", f"Name a folder with {', '.join(SUFFIXES)} files.")
    return found


def _cut(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and text of each passage: paragraphs together, up to a heading or the longest length."""
    lines = text.replace("\r\n", "\n").split("\n")
    first, size = 1, 0
    for number in range(1, len(lines) + 2):
        line = lines[number - 1] if number <= len(lines) else ""
        at_end = number > len(lines)
        heading = _HEADING.match("\n".join(lines[number - 1 : number + 1])) is not None
        full = size + len(line) > LONGEST
        if at_end or full or (heading and size >= _SHORTEST):
            shown = "\n".join(row.rstrip() for row in lines[first - 1 : number - 1]).strip("\n")
            if len(shown.strip()) >= _SHORTEST:
                yield first, number - 1, shown[:LONGEST]
            first, size = number, 0
        size += len(line) + 1


def _stem(word: str) -> str:
    """Plurals and the singular as one word."""
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 4 else word


class _Text(HTMLParser):
    """The text of a page, a block on a line of its own; scripts and navigation left out."""

    _SILENT = frozenset({"script", "style", "nav", "head", "template"})
    _BLOCKS = words("p div li tr pre h1 h2 h3 h4 h5 h6 section article table ul ol dl dt dd br blockquote")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in self._SILENT
        self._pre += tag == "pre"
        if tag in self._BLOCKS:
            self.parts.append("\n")
        if re.fullmatch(r"h[1-6]", tag):
            self.parts.append("#" * int(tag[1]) + " ")

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - (tag in self._SILENT))
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag in self._BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))


def _text_of(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    parser.close()
    return re.sub(r"\n[ \t]*(?:\n[ \t]*)+", "\n\n", "".join(parser.parts))
