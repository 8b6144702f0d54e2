"""A target over several processes (ranks) that torchrun starts: rank 0 leads, and the others replay its passes."""
