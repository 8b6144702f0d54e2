"""Prometheus metrics of a run: totals of its events under vLLM's names."""
