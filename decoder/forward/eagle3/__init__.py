"""Network of an EAGLE-3 head: a single layer that predicts tokens from the target's hidden states."""
