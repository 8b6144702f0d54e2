"""Checkpoints, tokenizers and pairs: what is loaded, and whether it fits."""
