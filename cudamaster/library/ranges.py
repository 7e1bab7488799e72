"""How large numbers may be that a user gives, on the command line or to the library."""

from __future__ import annotations

import math

from cudamaster.core.errors import UsageError

# Inputs of all calls are made before the first. With many more calls the harness runs out of memory or time, which
# looks like the kernel's fault; and 2^31 overflows to no calls at all.
MOST_CALLS = 10_000
MOST_ROUNDS = 1_000_000  # also of tries and examples; a run folder cannot keep a number of any size
LARGEST_SEED = 2**63 - 1


def must_be_within(name: str, number: float | None, low: float, high: float = math.inf) -> None:
    """Raise UsageError, which names the argument, for a number out of the range; None is left to a default."""
    if number is not None and not low <= number <= high:
        allowed = f"{low:,g} or more" if math.isinf(high) else f"{low:,} to {high:,}"
        raise UsageError(f"{name} is {number}.", f"Give {allowed}, or leave it out.")
