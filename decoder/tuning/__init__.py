"""Tuning: the fastest settings for a user's prompts on a user's machine."""
