"""A guard's refusal."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why a candidate may not run: data that ends as `Status.REJECTED`, not an exception.

    `guard` is "source", "flags" or "object". `line` is a line of the region (from 1), None where none is to
    blame. `fix` is what the author should write instead.
    """

    guard: str
    reason: str
    line: int | None
    fix: str

    def __str__(self) -> str:
        """One line for logs and prompts."""
        where = f" (line {self.line})" if self.line is not None else ""
        return f"{self.guard} guard{where}: {self.reason}. {self.fix}"
