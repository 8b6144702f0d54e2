"""Verification for large vocabularies: deterministic arithmetic on rows is batched over all nodes, on a device.

A few numbers for each node are then copied to the host at once; by them the host draws random numbers and walks the
tree.
"""
