"""Triton kernels of fixed-shape passes, each beside the plain function that is its reference."""
