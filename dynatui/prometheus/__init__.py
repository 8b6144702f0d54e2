"""Serves metrics of a run to Prometheus: totals of the run's events, under the names of vLLM's metrics."""
