"""Checkpoints, tokenizers and target-draft pairs: loading, and checks that target and draft fit each other."""
