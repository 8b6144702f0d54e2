"""The terminal: standard streams, input and output, and the restoration of the terminal's state after the app."""
