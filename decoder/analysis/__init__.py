"""Figures of recorded rounds, bottlenecks and what-if tables; imports no torch."""
