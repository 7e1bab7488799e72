"""Looking for faults that a right result does not show, with compute-sanitizer or the CPU device's checker."""
