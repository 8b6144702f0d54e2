"""Sampling: temperature, truncation, and noise that is a function of seed and position alone."""
