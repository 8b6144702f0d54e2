"""Triton kernels with the results of `decoder.sampling`'s torch code; imported only when they are tried on a GPU."""
