"""The guard of a candidate's source, which reads it as the device's preprocessor leaves it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from cudamaster.build.open_headers import folders
from cudamaster.core import caching, resources
from cudamaster.core.values import content_hash
from cudamaster.core.writing import write_text
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, Observing
from cudamaster.guards.flags import Flags
from cudamaster.guards.preprocess import RULES, differing, macros, names_of, plain_headers, preprocess, region_of
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature, Undecided
from cudamaster.guards.source import check_source, left_to_compiler
from cudamaster.guards.text import check_characters


def guarded(
    code: str, flags: Flags, device: Device, signature: Signature
) -> tuple[str, tuple[Undecided, ...]] | Refusal:
    """The preprocessed text of a source that passes the guard, and what is left to the compiler."""
    expanded = expand(code, flags, device, libraries=signature.headers)
    if isinstance(expanded, Refusal):
        return expanded
    refusal = check_source(code, signature, expanded) or _differs_between_builds(
        code, flags, device, signature, expanded
    )
    return refusal or (expanded, left_to_compiler(code, signature, expanded))


def expand(
    code: str, flags: Flags, device: Device, more: Sequence[str] = (), libraries: Sequence[str] = ()
) -> str | Refusal:
    """The region after the preprocessor, which gets nothing that is no plain text.

    `more` are further flags, `libraries` those whose headers the task opens. Raises DeviceError if one is not there.
    """
    by = device.preprocessor()
    return check_characters(code) or preprocess(
        code,
        by.compiler,
        [*by.folders, *folders(code, libraries)],
        [*by.defines, *flags.defines],
        standard=flags.standard,
        prelude=by.first,
        flags=more,
        libraries=libraries,
    )


def _differs_between_builds(
    code: str, flags: Flags, device: Device, signature: Signature, expanded: str
) -> Refusal | None:
    """Refuses a region whose text differs between builds: it could do less in the one that is counted."""
    if not isinstance(device, Observing):
        return None
    ways = device.flags_of_builds(flags.arguments)
    if not signature.headers and _is_surely_the_same(code, flags, device, ways):
        return None
    plain = region_of(expanded)
    with threads(2) as pool:
        builds = pool.map(partial(expand, code, flags, device, libraries=signature.headers), ways)
    for build in builds:
        if isinstance(build, Refusal):
            return build
        if (other := region_of(build)).text != plain.text:
            pairs = zip(plain.text.split("\n"), other.text.split("\n"), plain.lines, strict=False)
            line = next((line for one, another, line in pairs if one != another), None)
            return Refusal(
                "source",
                "the text depends on how it is compiled",
                line,
                "Write a constant or a macro of your own in place of __OPTIMIZE__, __TIME__ and the like.",
            )
    return None


def _is_surely_the_same(code: str, flags: Flags, device: Device, ways: Sequence[Sequence[str]]) -> bool:
    """Whether a region uses no macro that is another one in some build. Most use none, and no compiler has to be asked.

    Which macros those are depends on the region's includes alone, so the cache keeps their names.
    """
    headers, names = plain_headers(code), names_of(code)
    if headers is None or any(name.startswith("__has_") for name in names):
        return False
    found = _differing(flags, device, ways, headers)
    return found is not None and found.isdisjoint(names)


def _differing(
    flags: Flags, device: Device, ways: Sequence[Sequence[str]], headers: Sequence[str]
) -> frozenset[str] | None:
    """Names of the macros behind these includes that are not the same in all builds; None where a header is missing."""
    by = device.preprocessor()
    defines = [*by.defines, *flags.defines]
    rules = RULES.read_text(encoding="utf-8")
    key = content_hash(rules, *map(repr, (headers, defines, flags.standard, by.first, ways)))
    kept = resources.cache() / device.name / device.fingerprint / "harnesses" / f"macros-{key}.json"
    if caching.kept(kept):
        with suppress(OSError, ValueError):
            return frozenset(json.loads(kept.read_text(encoding="utf-8")))
    ask = partial(macros, headers, by.compiler, by.folders, defines, standard=flags.standard, prelude=by.first)
    with threads(2) as pool:
        plain, *others = pool.map(lambda own: ask(flags=own), [(), *ways])
    if plain is None or None in others:
        return None
    found = differing(plain, [each for each in others if each is not None])
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps(sorted(found)))
    return frozenset(found)
