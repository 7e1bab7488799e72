"""Mutated input of every kind: a clear error each, never a traceback, a hang or a wrong verdict.

What is tried is the same in every run of the same tests. To search further, each test with fifty times the examples:

    pytest tests/fuzz --hypothesis-profile=long
"""

from hypothesis import settings

settings.register_profile("long", max_examples=5000, print_blob=True)
