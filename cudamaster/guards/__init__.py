"""What stands before a candidate runs: guards on its source, its flags and its object file.

Each guard returns a cleaned value or None when all is well, and a `Refusal` otherwise. In order:

    preprocess -> check_source -> parse_command -> (compile) -> check_object -> localise -> (link)

The source guard reads what the compiler reads, the object guard judges what came of it and does not depend on
the first one having understood everything. Neither is a sandbox: host code that was let through runs inside the
harness's process. What stays open is said in the modules themselves.
"""
