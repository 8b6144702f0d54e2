"""Rounds on the device: draft, verification and commit run on the device, as CUDA graphs if the device supports them.

The host enqueues the verification of one round and the draft of the next round, and then waits once for both results.
All tensor shapes are fixed; trees differ only in the values of tensors. Without graphs, the same code runs as plain
tensor operations on any device.
"""
