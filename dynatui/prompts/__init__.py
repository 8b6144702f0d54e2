"""Loads prompts: those that come with the package, and the user's."""
