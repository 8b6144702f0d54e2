"""Prompts: a few of our own, and those that users bring."""
