"""Pauses of suffix lookup: a text that does not repeat itself is rarely searched, since a search takes time."""

SEARCH_S = 0.00015
"""Approximate seconds of a search and its decision. Lookups pause while they add fewer tokens to a round than decoding
commits in this time.
"""
GREEDY_GAIN, SAMPLED_GAIN = 0.5, 0.12
"""Initial values of `gain`, in tokens per round; texts repeat themselves less in sampling than in greedy decoding."""
GAIN_STEP = 0.05
SEARCHED_EVERY = 8
"""During a pause, one of this many rounds searches the text."""


class LookupPauses:
    def __init__(self, first_gain: float = GREEDY_GAIN) -> None:
        self.price = 0.0
        """Price of one second, in tokens."""
        self.gain = first_gain
        """EMA of the number of tokens that lookups added to a round in which the text was searched."""
        self.allowed = True
        """Whether the method's parameters allow lookups."""
        self._searched = False
        self._unsearched = 0

    @property
    def paused(self) -> bool:
        """Whether lookups draft in few rounds, or in none if they are not allowed."""
        return not self.allowed or self.gain < SEARCH_S * self.price

    def next_round(self) -> bool:
        """Whether the text is searched in the next round; to be called once per round."""
        if self.paused and self._unsearched + 1 < SEARCHED_EVERY:
            self.skip_round()
        else:
            self._searched, self._unsearched = True, 0
        return self._searched

    def skip_round(self) -> None:
        self._searched = False
        self._unsearched += 1

    def learn(self, tokens: int) -> None:
        if self._searched:
            self.gain += GAIN_STEP * (tokens - self.gain)
