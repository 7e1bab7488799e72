"""A result as one file that others can check: packing it, opening it safely, and what a repetition says of it."""
