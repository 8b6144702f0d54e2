"""Tensor parallelism: a target divided among processes (ranks); rank 0 leads, and the others replay its passes."""
