"""Lossless verifiers of trees that were sampled from the draft: the emitted text has the target's distribution.

    rows               arithmetic on probabilities, guarded against rounding
    random_generator   source of randomness
    drawn_tree         drafted tokens, in the order of sampling, with duplicates
    top_down           a walk from the root, with a solver at each node: nss, naive, spectr, specinfer, khisti
    bottom_up          a search for the end of the path, the deepest nodes first: block, traversal
    batched            verification on tensors, for large vocabularies
    verifiers          table of verifiers by name, and acceptance statistics with the upper bound for every solver

Outside `batched`, all arithmetic is in float64. The package is independent of models, sessions and settings. Modules
cite Thomas et al. 2026, "Dynamic Delayed Tree Expansion For Improved Multi-Path Speculative Decoding".
"""
