"""The terminal: standard streams, input and output, and its state before and after the app."""
