"""Network of an EAGLE-3 head: one layer that predicts tokens from the target's hidden states."""
