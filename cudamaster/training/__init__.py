"""Learning from measured speed: training sets from judged kernels, rewards from verdicts, and the stages of training.

The stages are those of the CUDA-L1 and CUDA-L2 papers. What needs PyTorch is in the modules that an extra (`train`)
serves; training sets and rewards need nothing.
"""
