"""What `import cudamaster` offers and the commands call: values in, values out, nothing printed.

`subjects` finds the task, precision, device and kernel that a caller means; `verdicts`, `profiles` and `searching` do
the work. A caller learns how far it is through callbacks (`progress`), and what went wrong through a CudaMasterError.
"""
