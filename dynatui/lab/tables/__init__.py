"""A table as data, and writers in plain text, Markdown and CSV, for tables of any content."""
