"""What the hardware says of a candidate: Nsight Compute, and the filter that keeps what matters for its class.

    ncu.profile --> Profile --> filter.findings --> Findings

A profile that cannot be had is a `NoProfile` with its reason, and becomes Findings that say so: data, no exception. On
a GPU they hold what is known without counters (without_counters.py).
"""
