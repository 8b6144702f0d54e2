"""Watches the speculative decoding of a running server through its metrics page. Contains no user interface."""
