"""Prompts: those of the package, and the user's."""
