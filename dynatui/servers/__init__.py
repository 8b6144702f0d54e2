"""Speculative decoding on servers: figures predicted from a profile of prompts, advised options, and monitoring."""
