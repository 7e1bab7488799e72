"""What a modelled call is made of, by which the interval of its ratio to another call is known (core/likelihood.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudamaster.core.likelihood import Makeup
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.model import AROUND, ModelledCall

_LEAST = 1e-3  # of a call: a smaller part is left out


def makeup(call: ModelledCall, counts: CallCounts | None) -> Makeup:
    """Kernels' time is divided among the parts of the GPU as each would take alone; the rest of a call is one part."""
    parts: dict[str, float] = {}
    for launch in call.launches:
        alone = math.fsum(launch.parts_us.values())
        for part, us in launch.parts_us.items() if alone > 0 else ():
            parts[str(part)] = parts.get(str(part), 0.0) + launch.device_us * launch.count * us / alone
    kept = {part: us for part, us in parts.items() if us >= _LEAST * call.whole_us}
    parts_us = {AROUND: call.whole_us - math.fsum(kept.values()), **kept}
    rounded = {part: float(f"{us:.4g}") for part, us in parts_us.items()}
    return Makeup(rounded, tuple(_means(counts)) if counts is not None else ())


def _means(counts: CallCounts) -> Iterator[str]:
    """What a call uses that not every kernel does, in the order of these lines."""
    launches = [event for event in counts.events if isinstance(event, Launch)]
    used = {
        "tensor cores": any(each.instructions.matrix for each in launches),
        "products of warpgroups": any(each.products.as_f16 for each in launches),
        "copies in bulk": any(each.shared.bulk_bytes for each in launches),
        "clusters": any(math.prod(each.cluster) > 1 for each in launches),
        "fences of clusters": any(each.cluster_fences.largest for each in launches),
        "grid barriers": any(each.cooperative for each in launches),
        "atomics": any(traffic.atomic_sectors for each in launches for traffic in each.traffic),
        "several launches": sum(each.count for each in launches) > 1,
        "allocations": any(event.event == "alloc" for event in counts.events),
    }
    return (name for name, is_used in used.items() if is_used)
