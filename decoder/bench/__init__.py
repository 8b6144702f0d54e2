"""Measurement of decoding speed: methods and transformers' own generation in turns, and rounds of given tree sizes."""
