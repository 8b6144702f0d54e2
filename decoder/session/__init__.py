"""Sessions: one method decoding one text, a round at a time."""
