"""A corpus for continued pretraining out of a folder of CUDA sources: the first step of the CUDA-L2 paper.

Its section 3.2.1 collects CUDA code, cleans and cuts it, has a model write the instruction that each piece of code
answers, retrieves context for the instruction, and trains on the triplets. The paper gives no rules for any of these;
each module here says which ones we chose.
"""
