"""Speculative decoding of a running server, from its metrics page. Knows no screen."""
