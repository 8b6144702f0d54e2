"""Pauses of suffix lookup: a text that does not repeat itself is searched in few rounds, since each search takes time.

This module knows neither texts nor trees.
"""

SEARCH_S = 0.00015
"""About the time that a search and the decision after it take on a CPU, in seconds. Lookups pause while they add fewer
tokens to a round than the text commits in this time.
"""
GREEDY_GAIN, SAMPLED_GAIN = 0.5, 0.12
"""Priors of the gain in greedy and in sampled texts, in tokens a round: sampled texts repeat themselves less."""
GAIN_STEP = 0.05
"""Step size of the EMA of the gain."""
SEARCHED_EVERY = 8
"""In a pause, one of this many rounds is searched."""


class LookupPauses:
    """Decides in which rounds of a text lookups draft."""

    def __init__(self, first_gain: float = GREEDY_GAIN) -> None:
        self.price = 0.0
        """Price of one second, in tokens."""
        self.gain = first_gain
        """EMA of the tokens that lookups added to a searched round."""
        self.allowed = True
        """Whether the method's parameters allow lookups."""
        self._searched = False
        self._unsearched = 0
        """Number of rounds since the last search."""

    @property
    def paused(self) -> bool:
        """Whether lookups draft in few rounds, or in none."""
        return not self.allowed or self.gain < SEARCH_S * self.price

    def next_round(self) -> bool:
        """Whether lookups draft in the next round; must be called once per round."""
        if self.paused and self._unsearched + 1 < SEARCHED_EVERY:
            self.skip_round()
        else:
            self._searched, self._unsearched = True, 0
        return self._searched

    def skip_round(self) -> None:
        """Begins a round in which lookups do not draft."""
        self._searched = False
        self._unsearched += 1

    def learn(self, tokens: int) -> None:
        """Records the tokens that lookups added to a round."""
        if self._searched:
            self.gain += GAIN_STEP * (tokens - self.gain)
