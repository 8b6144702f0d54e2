"""Measurements of speed: methods and transformers decode texts in turns; rounds verify trees of given sizes."""
