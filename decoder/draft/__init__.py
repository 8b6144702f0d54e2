"""Drafting: proposers of draft trees, from a draft model, an EAGLE-3 head or suffix lookup."""
