"""Sparse matrices times a dense vector or matrix. Entries at the same place add up, which SciPy does too."""

import numpy as np
from scipy import sparse

from numpy_oracles.form import Buffers, Oracle, Sizes, flat


def _coo(sizes: Sizes, buffers: Buffers, columns: int) -> sparse.coo_array:
    places = (buffers["row_indices"], buffers["col_indices"])
    return sparse.coo_array((buffers["values"], places), shape=(sizes["rows"], columns))


def _csr(sizes: Sizes, buffers: Buffers, columns: int) -> sparse.csr_array:
    parts = (buffers["values"], buffers["col_indices"], buffers["row_offsets"])
    return sparse.csr_array(parts, shape=(sizes["rows"], columns))


def _csc(sizes: Sizes, buffers: Buffers, columns: int) -> sparse.csc_array:
    parts = (buffers["values"], buffers["row_indices"], buffers["col_offsets"])
    return sparse.csc_array(parts, shape=(sizes["rows"], columns))


def _ell(sizes: Sizes, buffers: Buffers, columns: int) -> sparse.coo_array:
    rows, width = sizes["rows"], sizes["max_nnz_per_row"]
    used = buffers["col_ids"] >= 0
    row_ids = np.repeat(np.arange(rows), width)
    places = (row_ids[used], buffers["col_ids"][used])
    return sparse.coo_array((buffers["values"][used], places), shape=(rows, columns))


def spmv_coo(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["x"]
    return flat(y=_coo(sizes, buffers, len(x)) @ x)


def spmm_coo(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["X"].reshape(-1, sizes["K"])
    return flat(Y=_coo(sizes, buffers, len(x)) @ x)


def spmv_csc(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(y=_csc(sizes, buffers, sizes["columns"]) @ buffers["x"])


def spmm_csc(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    return flat(Y=_csc(sizes, buffers, sizes["columns"]) @ buffers["X"].reshape(-1, sizes["K"]))


def spmv_csr(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["x"]
    return flat(y=_csr(sizes, buffers, len(x)) @ x)


def spmm_csr(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["X"].reshape(-1, sizes["K"])
    return flat(Y=_csr(sizes, buffers, len(x)) @ x)


def spmv_ell(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["x"]
    return flat(y=_ell(sizes, buffers, len(x)) @ x)


def spmm_ell(sizes: Sizes, buffers: Buffers) -> dict[str, np.ndarray]:
    x = buffers["X"].reshape(-1, sizes["K"])
    return flat(Y=_ell(sizes, buffers, len(x)) @ x)


ORACLES: dict[str, Oracle] = {
    "spmv_coo": spmv_coo,
    "spmm_coo": spmm_coo,
    "spmv_csc": spmv_csc,
    "spmm_csc": spmm_csc,
    "spmv_csr": spmv_csr,
    "spmm_csr": spmm_csr,
    "spmv_ell": spmv_ell,
    "spmm_ell": spmm_ell,
}
