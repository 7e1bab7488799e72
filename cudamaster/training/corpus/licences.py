"""The licence of a file, as SPDX has the names, and where its text is.

What a file says itself comes first: its SPDX lines and well-known phrases in any of its comments. Several different
ones all hold, joined by AND. Otherwise the nearest licence file counts, in the file's folder or above it, up to the
folder that was named, or up to the top of the git checkout that this one is in. `unknown` is what nobody says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.training.corpus.comments import Comment

UNKNOWN, PROPRIETARY, ANY = "unknown", "LicenseRef-proprietary", "any"
PERMISSIVE = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "Unlicense", "CC0-1.0")
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+\-() \t]+)")
_COPYRIGHT = re.compile(r"^\W*((?:(?:©|\(c\)|copyright)[ \t:]*)+.*\b(?:19|20)\d\d\b.*|copyright (?:©|\(c\)) .+)$", re.I)
_FILES = re.compile(r"(?:un)?licen[cs]e(?:[-_.].*)?|copying(?:[-_.].*)?|.*[-_.]licen[cs]e(?:\.(?:txt|md))?", re.I)
_LONGEST = 200_000  # bytes of a licence file
_MOST_WORDS = 100  # of an expression
# Phrases of each licence, on text whose blanks, marks and letters are made alike. The first that fits of a row counts,
# and of several rows all.
_PHRASES: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("gnu affero general public license", "AGPL-3.0-or-later"),
        ("gnu lesser general public license", "LGPL-2.1-or-later"),
        ("gnu library general public license", "LGPL-2.0-or-later"),
        ("gnu general public license", "GPL-2.0-or-later"),
    ),
    (("mozilla public license", "MPL-2.0"),),
    (("eclipse public license", "EPL-2.0"),),
    (("creative commons attribution-noncommercial", "CC-BY-NC-4.0"),),
    (("creative commons attribution-sharealike", "CC-BY-SA-4.0"),),
    (("cc0 1.0 universal", "CC0-1.0"), ("dedicated to the public domain under cc0", "CC0-1.0")),
    (("this is free and unencumbered software released into the public domain", "Unlicense"),),
    (("apache license, version 2.0", "Apache-2.0"), ("apache license version 2.0", "Apache-2.0")),
    (("boost software license", "BSL-1.0"),),
    (
        ("permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"),
        ("licensed under the mit license", "MIT"),
        ("released under the mit license", "MIT"),
    ),
    (("permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"),
     ("permission to use, copy, modify, and distribute this software for any purpose with or without fee", "ISC")),
    (("redistribution and use in source and binary forms", "BSD"),),
    (
        ("retain all intellectual property and proprietary rights", PROPRIETARY),
        ("retains all intellectual property and proprietary rights", PROPRIETARY),
        ("proprietary and confidential", PROPRIETARY),
        ("subject to nvidia ownership rights", PROPRIETARY),
        ("without an express license agreement", PROPRIETARY),
        ("end user license agreement", PROPRIETARY),
    ),
    (("non-commercial purposes only", "LicenseRef-non-commercial"),
     ("noncommercial use only", "LicenseRef-non-commercial"),
     ("for research purposes only", "LicenseRef-non-commercial")),
)  # fmt: skip
_ENDORSE = re.compile(r"(?:neither the name|names? of .{0,80}may not be used to endorse)")
_ADVERTISE = "all advertising materials mentioning features"
_BSD_LIKE = re.compile(r"(?:bsd|3-clause) (?:style )?licen[cs]e")
# A file that names a licence which none of these is, and one that refers to the licence file.
_SAYS = re.compile(r"licen[cs]ed under|under the (?:terms|conditions) of|subject to the (?:terms|license)")
_REFERS = re.compile(
    r"licen[cs]e(?:\.\w+)? (?:file|found|in the)|(?:see|in) (?:the )?(?:accompanying )?(?:file )?licen[cs]e"
)
_ONLY = {"GPL-2.0-or-later": "gpl", "LGPL-2.1-or-later": "lgpl", "AGPL-3.0-or-later": "agpl"}


@dataclass(frozen=True)
class Licence:
    """The licence of a file.

    `name` is an SPDX expression, `copyright` the lines that say whose it is, `place` where the text is: "PATH", or
    "PATH:FIRST-LAST" for a file's own head; empty if there is none. `text` is that text, `hidden` the file's lines that
    hold licences and copyrights.
    """

    name: str
    copyright: tuple[str, ...] = ()
    place: str = ""
    text: str = ""
    hidden: frozenset[int] = frozenset()


class Licences:
    """Licences of the files of one folder; each licence file is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._top = _top(self._folder)
        self._near: dict[Path, tuple[Path, str, str] | None] = {}

    def of(self, path: str, comments: Sequence[Comment]) -> Licence:
        """The licence of the file at `path` below the folder, which has these comments."""
        names: list[str] = []
        rights: list[str] = []
        said: list[Comment] = []
        refused = False
        for comment in comments:
            found, whose = names_in(comment.text), tuple(copyrights(comment.text))
            plain = _plain(comment.text)
            refused |= bool(not found and _SAYS.search(plain) and not _REFERS.search(plain))
            if found or whose:
                said.append(comment)
                names += found
                rights += whose
        hidden = frozenset(line for each in said if each.alone for line in range(each.first, each.last + 1))
        near = self._nearest((self._folder / path).parent)
        if names:
            name = _all_of(names)
            own = [each for each in said if names_in(each.text)]
            place, text = f"{path}:{own[0].first}-{own[0].last}", "\n\n".join(each.text for each in own)
            if near is not None and near[1] == name and all(_SPDX.search(each.text) for each in own):
                place, text = self._shown(near[0]), near[2]  # the file has the name alone
            return Licence(name, tuple(dict.fromkeys(rights)), place, text, hidden)
        if near is None or refused:
            return Licence(UNKNOWN, tuple(dict.fromkeys(rights)), hidden=hidden)
        rights = rights or list(copyrights(near[2]))
        return Licence(near[1], tuple(dict.fromkeys(rights)), self._shown(near[0]), near[2], hidden)

    def _nearest(self, place: Path) -> tuple[Path, str, str] | None:
        """The nearest licence file from a folder upwards: its path, what it is, and its text."""
        if place not in self._near:
            found = next((_read(path) for path in _licence_files(place)), None)
            if found is None and place != self._top and place.is_relative_to(self._top):
                found = self._nearest(place.parent)
            self._near[place] = found
        return self._near[place]

    def _shown(self, path: Path) -> str:
        """A path as seen from the folder: below it, or with ../ above it."""
        return Path(os.path.relpath(path, self._folder)).as_posix()


def names_in(text: str) -> list[str]:
    """The licences that a text names or holds, each once."""
    if found := [" ".join(each.split()).rstrip("*/- ") for each in _SPDX.findall(text)]:
        return list(dict.fromkeys(each for each in found if each))
    plain = _plain(text)
    names = []
    for row in _PHRASES:
        name = next((name for phrase, name in row if phrase in plain), "")
        if name == "BSD":
            ends = "4" if _ADVERTISE in plain else "3" if _ENDORSE.search(plain) else "2"
            name = f"BSD-{ends}-Clause"
        if name:
            names.append(_versioned(name, plain))
    if not names and re.fullmatch(r".{0,300}\bmit licen[cs]e\b.{0,100}", plain):
        names.append("MIT")
    if not names and re.fullmatch(r".{0,300}\b(?:3-clause bsd|bsd 3-clause|bsd-3-clause)\b.{0,200}", plain):
        names.append("BSD-3-Clause")
    return names


def copyrights(text: str) -> Iterator[str]:
    """The lines of a text that say whose it is, without the marks of a comment."""
    for line in text.split("\n"):
        if found := _COPYRIGHT.match(line.strip().replace("SPDX-FileCopyrightText:", "")):
            yield " ".join(found[1].rstrip("*/ ").split())


def allowed(name: str, licences: Collection[str]) -> bool:
    """Whether an SPDX expression is met by these licences: all sides of AND, one side of OR. An exception is no bar."""
    if ANY in licences:
        return True
    known = {each.lower() for each in licences}
    tokens = re.findall(r"[()]|[^\s()]+", name)
    if len(tokens) > _MOST_WORDS:
        return False
    met, rest = _either(tokens, known)
    return met and not rest


def _either(tokens: list[str], known: Collection[str]) -> tuple[bool, list[str]]:
    met, rest = _both(tokens, known)
    while rest and rest[0].upper() == "OR":
        more, rest = _both(rest[1:], known)
        met = met or more
    return met, rest


def _both(tokens: list[str], known: Collection[str]) -> tuple[bool, list[str]]:
    met, rest = _one(tokens, known)
    while rest and rest[0].upper() == "AND":
        more, rest = _one(rest[1:], known)
        met = met and more
    return met, rest


def _one(tokens: list[str], known: Collection[str]) -> tuple[bool, list[str]]:
    if not tokens:
        return False, []
    if tokens[0] == "(":
        met, rest = _either(tokens[1:], known)
        return met and rest[:1] == [")"], rest[1:]
    rest = tokens[1:]
    if len(rest) > 1 and rest[0].upper() == "WITH":
        rest = rest[2:]
    return tokens[0].lower() in known, rest


def _versioned(name: str, plain: str) -> str:
    """A GNU licence with the version that the text names."""
    if name in _ONLY and (found := re.search(r"version (\d(?:\.\d)?)", plain)):
        number = found[1] if "." in found[1] else f"{found[1]}.0"
        return f"{_ONLY[name].upper()}-{number}-{'or-later' if 'later version' in plain else 'only'}"
    return name


def _top(folder: Path) -> Path:
    """Up to where licence files are looked for: the top of the git checkout around a folder, or the folder itself."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _read(path: Path) -> tuple[Path, str, str]:
    try:
        text = path.read_bytes()[:_LONGEST].decode("utf-8", "replace")
    except OSError:
        return path, UNKNOWN, ""
    names = names_in(text) or _by_title(text)
    return path, _all_of(names) if names else UNKNOWN, text


def _all_of(names: Iterable[str]) -> str:
    """Licences that all hold, as one expression."""
    each = list(dict.fromkeys(names))
    return each[0] if len(each) == 1 else " AND ".join(f"({one})" if " OR " in one else one for one in each)


def _plain(text: str) -> str:
    """A text with its blanks, marks and letters made alike."""
    return " ".join(re.sub(r"[*#/\"“”;|>]+", " ", text).lower().split())


def _licence_files(place: Path) -> Iterable[Path]:
    """Licence files of a folder; of several the plainest name first."""
    try:
        found = [each for each in place.iterdir() if _FILES.fullmatch(each.name) and each.is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _by_title(text: str) -> list[str]:
    """What a licence file is by its first lines, where no phrase says so."""
    head = " ".join(text[:400].lower().split())
    if "apache license" in head and "version 2.0" in head:
        return ["Apache-2.0"]
    return ["MIT"] if head.startswith("mit license") else []
