"""An expression in NumPy and SciPy for each of the fifty tasks, to hold the references in C++ against.

They are written from the task table alone and share nothing with bench/: the formulas come twice, from two hands.

`ORACLES[task](sizes, buffers)` takes every size of a case by name (scalar parameters as the wrapper gets them,
rounded to their type) and the input buffers by parameter name, each a flat array of float64, or of int64 for int
buffers. It gives the outputs by parameter name, flat too. For a buffer that is read and overwritten, the input is
what was there.
"""

from numpy_oracles import activation, algorithm, dense, llm, loss, normalization, sparse, stencil, tensor
from numpy_oracles.form import Oracle

ORACLES: dict[str, Oracle] = {
    **dense.ORACLES,
    **sparse.ORACLES,
    **normalization.ORACLES,
    **activation.ORACLES,
    **loss.ORACLES,
    **llm.ORACLES,
    **tensor.ORACLES,
    **stencil.ORACLES,
    **algorithm.ORACLES,
}
