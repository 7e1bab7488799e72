"""Search strategies, each in one file that a reader can compare with its paper."""
