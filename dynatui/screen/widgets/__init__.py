"""Thin Textual widgets that put rows on the screen."""
