"""Triton kernels of fixed-shape passes; the reference of each is a function of torch operators."""
