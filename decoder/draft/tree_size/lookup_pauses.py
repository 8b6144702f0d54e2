"""Pauses of suffix lookup: a text that does not repeat itself is searched in few rounds, since each search takes time.

This module knows neither texts nor trees.
"""

LEAST_GAIN = 0.05
"""Lookups pause while they add fewer tokens a round than this, which is about the price of a search."""
FIRST_GAIN = 0.2
"""Prior of the gain, in tokens a round."""
GAIN_STEP = 0.05
"""Step size of the EMA of the gain."""
SEARCHED_EVERY = 8
"""In a pause, one of this many rounds is searched."""


class LookupPauses:
    """Decides in which rounds of a text lookups draft."""

    def __init__(self) -> None:
        self.gain = FIRST_GAIN
        """EMA of the tokens that lookups added to a searched round."""
        self._searched = False
        self._unsearched = 0
        """Number of rounds since the last search."""

    @property
    def paused(self) -> bool:
        """Whether lookups draft in few rounds."""
        return self.gain < LEAST_GAIN

    def next_round(self) -> bool:
        """Whether lookups draft in the next round; must be called once per round."""
        self._searched = not self.paused or self._unsearched + 1 >= SEARCHED_EVERY
        self._unsearched = 0 if self._searched else self._unsearched + 1
        return self._searched

    def learn(self, tokens: int) -> None:
        """Records the tokens that lookups added to a round."""
        if self._searched:
            self.gain += GAIN_STEP * (tokens - self.gain)
