"""Instrumented models: time and work of each forward call within a method's rounds.

The time of a call includes the preparation of the model's inputs. The rest of a round is spent on softmax, choice of
tokens, trees and the loop. Models are instrumented only on a CPU: there, every round calls the models, and every call
returns when its computation is finished. An accelerator computes asynchronously, and may run a whole round without
calling the models.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, cast

from decoder.draft.auto_drafter import AutoDrafter
from decoder.draft.drawn_drafter import DrawnDrafter
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.translated_drafter import TranslatedDrafter
from decoder.engine import Engine
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.session.host import HostSession
from decoder.session.protocol import Session
from dynatui.lab.bench.arithmetic import Work


@dataclass(frozen=True)
class Seen:
    """Time and work of both models so far."""

    models_s: float
    target: Work
    draft: Work

    def since(self, before: "Seen") -> "Seen":
        return Seen(self.models_s - before.models_s, self.target.since(before.target), self.draft.since(before.draft))


class _InstrumentedModel:
    """Wrapper that times and counts the calls of a model; all other attributes are those of the model.

    The time of a call includes the time for counting, so that counting does not lengthen the rest of the round.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.seconds = 0.0
        self.calls = self.rows = self.looks = self.scored = 0
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def streaming(self, sinks: int, window: int) -> "_InstrumentedModel":
        self._model = self._model.streaming(sinks, window)
        return self

    @property
    def work(self) -> Work:
        return Work(self.calls, self.rows, self.looks, self.scored)

    def forward(self, cache: KvCache, tokens: Any, *given: Any) -> Any:
        start = time.perf_counter()
        logits = self._model.forward(cache, tokens, *given)
        self._count(cache, len(tokens), scored=len(tokens))
        self.seconds += time.perf_counter() - start
        return logits

    def read(self, cache: KvCache, tokens: Any, *given: Any) -> Any:
        start = time.perf_counter()
        logits = self._model.read(cache, tokens, *given)
        self._count(cache, len(tokens), scored=1)
        self.seconds += time.perf_counter() - start
        return logits

    def _count(self, cache: KvCache, rows: int, scored: int) -> None:
        self.calls += 1
        self.rows += rows
        self.looks += rows * cache.rows
        self.scored += scored


class InstrumentedEngine:
    """Engine whose models are instrumented on a CPU and unchanged on an accelerator."""

    def __init__(self, engine: Engine) -> None:
        self._models: dict[str, _InstrumentedModel] = {}
        self.engine, pair = engine, engine.pair
        if pair.target.device.type == "cpu":
            self._models = {role: _InstrumentedModel(model) for role, model in pair.models.items()}
            self.engine = replace(engine, pair=replace(pair, **cast("dict[str, Any]", self._models)))

    def seen(self) -> Seen | None:
        if not self._models:
            return None
        work = {role: model.work for role, model in self._models.items()}
        return Seen(sum(model.seconds for model in self._models.values()), work["target"], work.get("draft", Work()))


def kv_bytes(session: Session) -> int | None:
    """Allocated bytes of a session's KV caches, unused rows included; None if unknown."""
    if isinstance(session, HostSession):
        proposer = session.proposer
        model = proposer.model if isinstance(proposer, AutoDrafter) else proposer
        drafting = [model.passes.cache] if isinstance(model, ModelDrafter | TranslatedDrafter | DrawnDrafter) else []
        return sum(cache.nbytes for cache in [session.target_cache, *drafting])
    told: int | None = getattr(session, "kv_bytes", None)
    return told


def waits(session: Session) -> int | None:
    """Number of times that the host has waited for the device in rounds so far; None if not counted."""
    counted: int | None = getattr(session, "waits", None)
    return counted
