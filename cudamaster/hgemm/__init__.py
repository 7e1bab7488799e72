"""Half-precision matrix products C = A B over a grid of shapes, after CUDA-L2 (arXiv 2512.02551): results and views."""
