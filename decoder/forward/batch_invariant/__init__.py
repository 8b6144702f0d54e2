"""Batch-invariant forward passes for --exact: a row's bits do not depend on the other rows of its pass."""
