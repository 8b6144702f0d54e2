"""Measurement of decoding speed: texts by methods and by transformers, in turns, and rounds with given tree sizes."""
