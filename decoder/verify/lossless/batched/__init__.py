"""Verification for large vocabularies: arithmetic on whole rows is batched over nodes on a device, without randomness.

The host then walks the tree and draws random numbers by a few numbers a node, which reach it in one copy.
"""
