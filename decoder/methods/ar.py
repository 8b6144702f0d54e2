"""ar: plain greedy decoding, which every other method is compared with."""

from decoder.methods.method import Method

METHOD = Method("ar", "autoregressive: one token a round, the baseline", races=True)
