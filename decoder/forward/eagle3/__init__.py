"""The network of an EAGLE-3 head: one layer that guesses tokens from what a target has computed for the text."""
