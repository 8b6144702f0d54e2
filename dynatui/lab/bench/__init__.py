"""Measurements of speed: methods and baselines decode texts in turns, or rounds verify trees of given sizes."""
