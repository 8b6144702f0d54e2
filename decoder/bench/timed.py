"""How long the models themselves take within a method's rounds: what is left is the price of everything around them.

Softmax, the choice of tokens, trees and the loop are all in the rest; what a model does to its own inputs is not. Only
where a call returns when it is done: an accelerator goes on computing.
"""

import time
from dataclasses import replace
from typing import Any, cast

from decoder.models import LanguageModel, Pair


class _Timed:
    """A model whose calls are timed, and which is itself in all else."""

    def __init__(self, model: LanguageModel) -> None:
        self.seconds = 0.0
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, *given: Any) -> Any:
        """See `LanguageModel.forward`."""
        start = time.perf_counter()
        logits = self._model.forward(*given)
        self.seconds += time.perf_counter() - start
        return logits

    def read(self, *given: Any) -> Any:
        """See `LanguageModel.read`."""
        start = time.perf_counter()
        logits = self._model.read(*given)
        self.seconds += time.perf_counter() - start
        return logits


class TimedPair:
    """A pair whose models are timed, on a CPU; elsewhere the pair as it is."""

    def __init__(self, pair: Pair) -> None:
        self._models: tuple[_Timed, ...] = ()
        self.pair = pair
        if pair.target.device.type == "cpu":
            self._models = _Timed(pair.target), _Timed(pair.draft)
            target, draft = cast("tuple[LanguageModel, LanguageModel]", self._models)
            self.pair = replace(pair, target=target, draft=draft)

    def seconds(self) -> float | None:
        """Time in both models so far; None where it cannot be known."""
        return sum(model.seconds for model in self._models) if self._models else None
