"""Benchmarks of dynatui itself; each module is a program that is run on its own."""
