"""Lossless verifiers for trees that were drawn from the draft: what is emitted is distributed as the target's own text.

    rows, coins        probabilities and their guards; where probability comes from
    drawn_tree         what was drawn, and in which order
    top_down           a walk from the root, by a solver at each node: nss, naive, spectr, specinfer, khisti
    bottom_up          where to stop, the deepest nodes first: block, traversal
    acceptance_bound   what no solver can exceed
    batched            the same for large vocabularies, on tensors
    verifiers          all of them by name, and the drafting that each is lossless with

Pure functions in float64; no module here knows models, sessions or settings. "The paper" is Thomas et al. 2026,
"Dynamic Delayed Tree Expansion For Improved Multi-Path Speculative Decoding".
"""
