"""Triton kernels equal in result to plain code in `decoder.sampling`; imported only when kernels are tried on a GPU."""
