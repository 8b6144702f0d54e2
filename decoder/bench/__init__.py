"""Measures decoding speed: every method and transformers' own generation, side by side, and rounds of given shapes."""
