"""The guard of a candidate's source, which reads it as the device's preprocessor leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cudamaster.build.open_headers import folders
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, Observing
from cudamaster.guards.flags import Flags
from cudamaster.guards.preprocess import preprocess, region_of
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
    plain = region_of(expanded)
    with threads(2) as pool:
        build_by = partial(expand, code, flags, device, libraries=signature.headers)
        builds = pool.map(build_by, device.flags_of_builds(flags.arguments))
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
