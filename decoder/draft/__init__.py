"""Drafting: proposers of draft trees, from a draft model, a drafting head or suffix lookup."""
