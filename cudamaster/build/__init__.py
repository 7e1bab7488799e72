"""From a candidate to executables."""
