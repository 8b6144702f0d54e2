"""Drafting heads: small networks that draft from the hidden states of one target."""
