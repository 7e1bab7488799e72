"""Vendors' libraries, and our kernels beside them."""
