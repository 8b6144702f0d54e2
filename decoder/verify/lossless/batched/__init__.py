"""Verification for large vocabularies: deterministic arithmetic on rows is batched over all nodes, on a device.

A few numbers for each node are then copied to the host in one copy; khisti copies the rows of visited nodes. With these
numbers and random numbers, the host walks the tree.
"""
