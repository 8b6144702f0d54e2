"""Network of EAGLE-3 and P-EAGLE heads: one or a few layers that predict tokens from the target's hidden states."""
