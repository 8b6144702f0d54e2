"""Deciding which drafted tokens stay: pure functions of the tree and what the target says."""
