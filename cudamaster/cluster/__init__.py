"""Builds and measures on the nodes of a Ray cluster (docs/cluster.md)."""
