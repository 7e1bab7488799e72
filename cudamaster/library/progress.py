"""How far something is, in lines of text for a caller's function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from cudamaster.devices import cases

Progress = Callable[[str], None]
_EVERY_S = 1.0


@contextlib.contextmanager
def telling(progress: Progress | None, what: str, doing: str) -> Iterator[None]:
    """Inside the block, `progress` gets a line at once, and then one a second on how far builds and judges are.

    An exception that it raises meanwhile, in another thread, is raised at the end of the block.
    """
    if progress is None:
        yield
        return
    raised: list[BaseException] = []

    def told(line: str) -> None:
        if not raised:
            try:
                progress(line)
            except BaseException as error:
                raised.append(error)

    progress(f"{what}: {doing}")
    with cases.reporting(what, told, every_s=_EVERY_S):
        yield
    if raised:
        raise raised[0]
