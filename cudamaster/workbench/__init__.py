"""Where a candidate is evaluated and profiled: one task, one precision, one device."""
