"""A table as data, and its writers in plain text, Markdown and CSV. Knows no particular table."""
