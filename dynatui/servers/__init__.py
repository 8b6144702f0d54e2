"""Speculative decoding on servers: figures expected from a profile of prompts, advised options, and monitoring."""
