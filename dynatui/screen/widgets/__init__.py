"""The Textual widget of a panel, and the escape sequences that update it."""
