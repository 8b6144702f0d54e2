"""Tree size: how many nodes a round drafts and verifies, by expected tokens against measured time."""
