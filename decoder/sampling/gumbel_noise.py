"""Coupled sampling of one text: the Gumbel-max trick with noise that target and draft share.

The target chooses the token for which logit plus temperature times Gumbel noise is largest. This token is a sample from
the target's distribution. The choice depends on the text and the seed alone, not on the drafted tree. A draft with the
same noise predicts the choice as well as it predicts greedy choices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.sampling.device_truncation import DeviceTruncation
from decoder.sampling.noise import TokenNoise, gumbel, gumbel_of_tokens, gumbel_on_device, signed
from decoder.sampling.settings import Sampling, Schedule

SHARPNESS = 2.0
"""Factor on the sum of the draft's logits and the noise. The softmax of the product estimates, for each token, the
probability that the target chooses this token.

With the embedded pair at temperatures .3, .6, .8 and 1, the log loss of this estimate (uncalibrated) for the first
drafted token is .51, .50, .53 and .59. With 1 / temperature as the factor, the log loss is .52, .55, .66 and .73; with
the draft's own probabilities, it is 1.1, 1.5, 1.9 and 2.1.
"""
TRUNCATION_PENALTY = 96.0
"""Penalty subtracted from the draft's scores of truncated tokens, so that they rank after all kept tokens but remain
possible. 96 is large enough, since truncated tokens are less probable than kept tokens, and two values of the noise
differ by at most 41.
"""
CACHED_ROWS = 128
"""Number of positions whose noise is cached."""
MADE_AT_ONCE, MOST_NUMBERS = 16, 1 << 16
"""Maximum number of positions, and maximum number of random numbers, in one computation of noise. With a large
vocabulary, the second limit allows fewer positions.
"""


class GumbelNoise:
    """Gumbel noise of one text, added to logits. Each position's noise is computed once."""

    noisy = True

    def __init__(self, seed: int, schedule: Schedule, vocabulary: int, device: torch.device) -> None:
        self._seed = seed
        self._schedule = schedule
        self._vocabulary = vocabulary
        self.device = device
        self._rows: dict[int, tuple[float, Float[Tensor, V]]] = {}
        """The temperature at each position, and the position's noise multiplied by this temperature."""

    def greedy_from(self, position: int) -> bool:
        """Whether decoding is greedy at a position and all later positions; if so, logits stay unchanged."""
        return self._schedule.greedy_from(position)

    def sampling(self, position: int) -> Sampling:
        """Sampling settings of the token at a position."""
        return self._schedule.at(position)

    def scores(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits plus the noise at `positions`. Among the tokens that truncation keeps, the target chooses the token
        with the largest sum.
        """
        return logits.float() + self._noise(positions)

    def choices(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> list[int]:
        """The token that the target chooses at each position, from its logits for that position."""
        rows = logits.float()
        if self.device.type == "cpu":
            return [self._choice(row, position) for row, position in zip(rows, positions, strict=True)]
        settings = [self._schedule.at(position) for position in positions]
        scores = self.scores(rows, positions)
        for row, sampling in enumerate(settings):
            if sampling.truncates:
                scores[row].masked_fill_(~truncation_mask(rows[row : row + 1], sampling)[0], -torch.inf)
        return scores.argmax(-1).tolist()

    def chooser(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Callable[[int], int]:
        """A function that maps the index of a row to the token that the target chooses in this row. On a CPU, a token
        is computed only when the function is called for its row, since few rows are needed.
        """
        if self.device.type != "cpu":
            return self.choices(logits, positions).__getitem__
        rows = logits.float()
        return lambda row: self._choice(rows[row], positions[row])

    def _choice(self, logits: Float[Tensor, "V"], position: int) -> int:
        scores = (logits + self._row(position)).numpy()
        sampling = self._schedule.at(position)
        if sampling.truncates:
            return _best_kept(logits.numpy(), scores, sampling)
        # On a CPU, numpy's argmax takes a tenth of the time of torch's argmax.
        return int(scores.argmax())

    def probabilities(self, logits: Float[Tensor, "N V"], positions: Sequence[int]) -> Float[Tensor, "N V"]:
        """Logits whose softmax estimates the probability that the target chooses each token, computed from the draft's
        logits.
        """
        settings = [self._schedule.at(position) for position in positions]
        scores = self.scores(logits, positions)
        if not any(sampling.truncates or sampling.greedy for sampling in settings):
            return scores.mul_(SHARPNESS)
        for row, sampling in enumerate(settings):
            if sampling.truncates:
                scores[row] -= TRUNCATION_PENALTY * ~truncation_mask(logits[row : row + 1].float(), sampling)[0]
            if not sampling.greedy:
                scores[row] *= SHARPNESS
        return scores

    def noise_from(self, position: int) -> TokenNoise | None:
        """See `DraftProbabilities`."""
        return None if self.greedy_from(position) else self.noise_of

    def noise_of(self, position: int, tokens: Sequence[int]) -> Sequence[float]:
        """Noise that is added to each token's log-probability; 0 if the choice is greedy."""
        sampling = self._schedule.at(position)
        if sampling.greedy:
            return [0.0] * len(tokens)
        if self.device.type != "cpu":
            # The host does not wait for numbers from the device, since it can compute a few numbers itself.
            return gumbel_of_tokens(self._seed, position, tokens)
        # On a CPU, numpy's indexing takes a tenth of the time of torch's indexing.
        return [noise / sampling.temperature for noise in self._row(position).numpy()[list(tokens)].tolist()]

    def _noise(self, positions: Sequence[int]) -> Float[Tensor, "N V"]:
        first = self._row(positions[0])
        if all(position == positions[0] for position in positions):
            return first
        return torch.stack([first, *map(self._row, positions[1:])])

    def _row(self, position: int) -> Float[Tensor, "V"]:
        temperature = self._schedule.at(position).temperature
        if position not in self._rows or self._rows[position][0] != temperature:
            self._make(position)
        return self._rows[position][1]

    def _make(self, position: int) -> None:
        """Computes the noise of a position and of the positions after it. In one computation, each position takes a
        third of the time that it would take alone.
        """
        if len(self._rows) > CACHED_ROWS:
            self._rows = {place: row for place, row in self._rows.items() if place >= position - CACHED_ROWS // 2}
        places = range(position, position + max(1, min(MADE_AT_ONCE, MOST_NUMBERS // self._vocabulary)))
        for place, noise in zip(places, self._computed(places), strict=True):
            temperature = self._schedule.at(place).temperature
            self._rows[place] = temperature, noise.mul_(temperature)

    def _computed(self, positions: Sequence[int]) -> Float[Tensor, "N V"]:
        if self.device.type == "cpu":
            return torch.from_numpy(gumbel(self._seed, positions, self._vocabulary).astype(np.float32))
        seed, places = (torch.tensor(numbers, device=self.device) for numbers in ([signed(self._seed)], [*positions]))
        return gumbel_on_device(seed, places, torch.arange(self._vocabulary, device=self.device)).float()


def truncation_mask(logits: Float[Tensor, "N V"], sampling: Sampling) -> Bool[Tensor, "N V"]:
    """Mask of the tokens that truncation keeps. The temperature applies first, then top-k, then top-p within the top-k.

    Of equally probable tokens, those with lower ids are kept first. The most probable token is always kept.
    """
    if logits.device.type == "cpu":
        rows = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        return torch.from_numpy(np.stack([_truncation_mask(row, sampling) for row in rows.numpy()]))
    settings = logits.new_tensor([[sampling.temperature, sampling.ranks, sampling.share]], dtype=torch.float64)
    return ~DeviceTruncation.of(settings, logits.shape[-1]).excluded(logits)


def _truncation_mask(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.bool_]:
    """One row of `truncation_mask`. Finds a threshold in the sorted logits instead of ranking the tokens, since a sort
    takes a sixth of the time of an argsort.
    """
    ranked = np.sort(logits)[::-1]
    with np.errstate(invalid="ignore"):  # a draft's row may have no finite logit; it then has no children
        weights = np.exp((ranked - ranked[0]).astype(np.float64) / sampling.temperature)
    if sampling.top_k:
        weights[sampling.top_k :] = 0
    upto = np.cumsum(weights)
    share = sampling.top_p * upto[-1] if sampling.top_p < 1 else np.inf
    count = min(max(1, int((upto - weights < share).sum())), sampling.top_k or len(logits))
    mask: NDArray[np.bool_] = logits > ranked[count - 1]
    mask[np.flatnonzero(logits == ranked[count - 1])[: count - int(mask.sum())]] = True
    return mask


def _best_kept(logits: NDArray[np.float32], scores: NDArray[np.float32], sampling: Sampling) -> int:
    """The token with the largest score of all tokens that truncation keeps. Tests tokens in descending order of score,
    which is faster than computing the mask of all tokens.
    """
    weights = np.exp((logits - logits.max()).astype(np.float64) / sampling.temperature)
    whole = weights.sum() if not sampling.top_k else np.sort(weights)[-sampling.top_k :].sum()
    while True:
        best = int(scores.argmax())
        ahead = logits > logits[best]
        ahead[:best] |= logits[:best] == logits[best]
        in_top_k = not sampling.top_k or np.count_nonzero(ahead) < sampling.top_k
        in_top_p = sampling.top_p == 1 or not ahead.any() or weights[ahead].sum() < sampling.top_p * whole
        if in_top_k and in_top_p:
            return best
        scores[best] = -np.inf
