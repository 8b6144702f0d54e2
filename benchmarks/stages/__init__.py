"""Stages of a session on a GPU (`benchmarks/first.py`), and the processes in which they run."""
