"""A table as data, and its writers in plain text, Markdown and CSV. Knows nothing of what is told in it."""
