"""Prompts: texts and conversations, and how they are read from files."""
