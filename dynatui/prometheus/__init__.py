"""What Prometheus reads of a run: totals of its events, told under vLLM's names."""
