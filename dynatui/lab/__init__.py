"""Measuring, searching and training: the laboratory. Only its own commands import it: the engine and the monitor run
without it.
"""
