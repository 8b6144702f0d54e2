"""Triton kernels with the results of plain functions in `decoder.sampling`; only the trial on a device imports them."""
