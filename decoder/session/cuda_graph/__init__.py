"""Rounds on the device: drafted, verified and committed there, captured as CUDA graphs where the device has them.

The host enqueues the verification of one round and the draft of the next, and waits once for both. Shapes are fixed, so
that the same code runs as plain tensor operations on any device; trees differ only in masks and numbers.
"""
