"""How many nodes a round drafts and verifies: expected tokens against measured time."""
