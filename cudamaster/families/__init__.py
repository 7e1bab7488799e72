"""Families of our own kernels: templates, what may be chosen in them, and a model that says what is promising."""
