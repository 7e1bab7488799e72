"""From a candidate to executables, and the cache they lie in."""
