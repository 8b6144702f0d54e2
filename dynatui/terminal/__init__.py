"""The terminal: standard streams, input and output, and restoring the terminal's state after the app."""
