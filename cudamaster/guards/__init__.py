"""Checks before a candidate runs: guards for its source, its flags and its object file.

Each guard returns a cleaned value or None when all is well, and a `Refusal` otherwise. In order:

    parse_command -> preprocess -> check_source -> (compile) -> check_object -> localise -> (link)

The source guard reads what the compiler reads. The object guard judges the compiler's result, and does not depend on
the source guard having understood everything. Neither is a sandbox: host code that passes runs in the worker's process.
The modules themselves say what stays open.
"""
