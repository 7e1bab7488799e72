"""A model of the GPU for the CPU device: what a call does is counted (counts.py), and priced by a GPU's parameters."""
