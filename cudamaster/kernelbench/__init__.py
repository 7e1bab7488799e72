"""Problems in KernelBench's form: read in a process that has PyTorch, and written as tasks."""
