"""Loads prompts: the prompts that come with the package, and the user's prompts."""
