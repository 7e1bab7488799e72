"""Search strategies, each one file that a reader can hold against its paper."""
