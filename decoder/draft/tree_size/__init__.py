"""Tree size: how many nodes a round drafts and verifies, chosen by expected tokens and measured times."""
