"""The tasks: cards read and checked, cases drawn from them, harnesses rendered."""
