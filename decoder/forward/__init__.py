"""Rows of tokens in, logits out: every way in which a model runs."""
