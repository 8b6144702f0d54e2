"""Benchmarks: methods and baselines take turns decoding the same texts, or rounds with given tree sizes are timed."""
