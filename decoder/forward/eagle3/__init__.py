"""Network of an EAGLE-3 head: one layer that predicts tokens from hidden states of the target."""
