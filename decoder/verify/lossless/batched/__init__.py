"""Verification for large vocabularies: what reads whole rows is batched over nodes on their device and free of coins.

RandomGenerator and walks then work on a few numbers a node, which reach the host in one copy.
"""
