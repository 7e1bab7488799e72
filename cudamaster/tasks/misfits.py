"""What contradicts itself in a card, all of it at once, each with its place in the card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

Place = tuple[str | int, ...]  # as pydantic's `loc`: ("parameters", 2, "length")


class Misfits(ValueError):
    """Errors of a card with their places. Its text is that of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Place, ValueError]] = []

    @classmethod
    def of(cls, error: ValueError, *place: str | int) -> Misfits:
        """A single error with its place."""
        made = cls()
        made.found.append((place, error))
        return made

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Keeps a ValueError that is raised inside, with the place; those of Misfits with their own below it."""
        try:
            yield
        except Misfits as inner:
            self.found += [((*place, *below), error) for below, error in inner.found]
        except ValueError as error:
            self.found.append((place, error))

    def end(self) -> None:
        """Raises itself where there are any."""
        if self.found:
            raise self

    def __str__(self) -> str:
        return str(self.found[0][1]) if self.found else ""
