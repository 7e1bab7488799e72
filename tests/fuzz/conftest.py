"""Mutated input of every kind: a clear error each, never a traceback, a hang or a wrong verdict.

What is tried is the same in every run. To search further, each test with fifty times the examples, and other ones:

    pytest tests/fuzz --hypothesis-profile=long
"""

from hypothesis import settings

settings.register_profile("long", max_examples=5000, print_blob=True)
