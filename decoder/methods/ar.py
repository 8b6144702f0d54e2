"""ar: plain autoregressive decoding, the baseline of every comparison."""

from decoder.methods.method import Method

METHOD = Method("ar", "autoregressive: one token a round, the baseline", races=True)
