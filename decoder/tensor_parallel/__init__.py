"""Tensor parallelism: a target over several processes (ranks); rank 0 leads and the others replay its passes."""
