"""Sampling: temperature, truncation, and Gumbel noise that is a function of seed, position and token alone."""
