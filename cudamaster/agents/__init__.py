"""The four agents of algorithm 1 (CUDAMaster paper, section 4.3): Planner, Coder, Compiler, Debug.

Each is a function from values and a model to values. They touch no disk and start no process.
"""
