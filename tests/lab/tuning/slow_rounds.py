"""Rounds of speculative decoding as servers run them, by plain Hugging Face modules that read every text from its
beginning, counted by position. Shares no code with the program.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Law: TypeAlias = NDArray[np.float64]


def one_hot(token: int, vocabulary: int) -> Law:
    law = np.zeros(vocabulary)
    law[token] = 1
    return law


class SlowModel:
    def __init__(self, module: Any, temperature: float = 0.0) -> None:
        self._module, self._temperature = module, temperature

    def logits(self, text: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            rows: torch.Tensor = self._module(torch.tensor([list(text)])).logits[0, -1]
        return rows.double()

    def best(self, text: Sequence[int]) -> int:
        return int(self.logits(text).argmax())

    def probs(self, text: Sequence[int]) -> Law:
        logits = self.logits(text)
        if not self._temperature:
            return one_hot(int(logits.argmax()), len(logits))
        found: Law = (logits / self._temperature).softmax(-1).numpy()
        return found


class Counted(NamedTuple):
    rounds: int
    accepted: list[int]


def rounds(
    target: SlowModel,
    draft: SlowModel,
    prompt: Sequence[int],
    places: int,
    k: int,
    *,
    drawn: bool = False,
    seed: int = 0,
) -> Counted:
    """Rejection sampling (Leviathan et al. 2023, algorithm 1) of tokens drawn from the draft, or of its most probable
    token as if the draft were certain of it. At temperature 0, this is greedy decoding.
    """
    random = np.random.default_rng(seed)

    def sampled(probs: Law) -> int:
        return int(random.choice(len(probs), p=probs / probs.sum()))

    text, count, accepted = [*prompt, sampled(target.probs(prompt))], 0, [0] * k
    while len(text) - len(prompt) < places:
        chain, laws = list(text), []
        for _ in range(k):
            law = draft.probs(chain)
            laws.append(law if drawn else one_hot(int(law.argmax()), len(law)))
            chain.append(sampled(laws[-1]))
        for level, law in enumerate(laws):
            token, probs = chain[len(text)], target.probs(text)
            if random.uniform() * law[token] >= probs[token]:
                text.append(sampled(np.maximum(probs - law, 0)))
                break
            text.append(token)
            accepted[level] += 1
        else:
            text.append(sampled(target.probs(text)))
        count += 1
    return Counted(count, accepted)
