"""Tuning: a search for the fastest settings for a user's prompts on the user's machine."""
