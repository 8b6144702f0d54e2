"""Batch-invariant forward passes for --exact: the bits of a row's logits do not depend on the pass's other rows."""
