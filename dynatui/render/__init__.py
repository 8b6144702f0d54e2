"""Renders the state of a run as rows of styled text, without clock and threads; only `palette` imports Textual."""
