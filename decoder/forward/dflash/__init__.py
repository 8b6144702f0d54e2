"""Network of DFlash heads: a few layers that guess all tokens of a block in one pass, from the target's states."""
