"""Tensor parallelism: a target divided among processes (ranks); rank 0 leads, and the other ranks replay its passes."""
