"""Verification of draft trees: pure functions of the tree and the target's logits."""
