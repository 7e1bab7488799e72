"""The audit: a corpus of dishonest and of honest but unusual candidates, held against the harness.

`corpus` reads the kinds of candidates, `regions` writes one for a task, `outcomes` says what became of it, `running`
goes through many of them and remembers, `table` shows the result.
"""
