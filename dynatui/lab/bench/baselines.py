"""Baselines of transformers, each in several settings: plain `generate`, assisted generation and prompt lookup.

All baselines run on the pair's own modules, on the caller's thread. The best setting depends on models and machine, so
all settings are measured and the table names the best setting. The prefill ends when the first tokens arrive; these
tokens do not count in tokens/s.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from decoder.engine import Engine
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from decoder.session.hf_assisted import as_wide_as, drawn_by
from decoder.session.protocol import Outcome
from decoder.system.device import Stopwatch
from decoder.tree import TokenTree
from dynatui.lab.bench.contenders import PROMPT_LOOKUP, Contender, Trial, running

CACHES = ("dynamic", "static")
ASSISTED: dict[str, dict[str, float]] = {
    "20/.4": {},
    "3/0": {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.0},
    "5/.4": {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.4},
}
"""Settings of assisted generation by name. In the name `5/.4`, 5 is the number of drafted tokens, and .4 is the
confidence below which drafting stops. The first setting is transformers' default.
"""
LOOKED_UP = (5, 10)
"""Maximum numbers of tokens that prompt lookup copies after a match of one or two tokens."""
_HIDDEN = frozenset({"assistant_model", "prompt_lookup_num_tokens"})
"""Arguments that make `generate` draft tokens; with any of these arguments, the number of draft passes is unknown."""


class _Bursts(BaseStreamer):
    """Streamer that records each burst of tokens with the time at which the burst arrived."""

    def __init__(self) -> None:
        self.bursts: list[tuple[list[int], float]] = []
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_seen:
            self.bursts.append((value.flatten().tolist(), time.perf_counter()))
        self._prompt_seen = True

    def end(self) -> None:
        pass


def baselines(pair: Pair, config: RunConfig) -> list[Contender]:
    """All baselines in all their settings; at a temperature above 0, the baselines draw their own random numbers."""
    assistant = as_wide_as(pair.draft, pair.target.width) if pair.draft and not pair.translation else None

    def made(group: str, name: str, settings: Mapping[str, Any], run: Callable[..., Trial], **given: Any) -> Contender:
        return Contender(f"{group} {name}", group, partial(run, config=config, **given), settings, foreign=True)

    def plain(group: str, name: object, settings: dict[str, Any]) -> Contender:
        return made(group, str(name), settings, _generated, **settings)

    return [
        *(plain("generate", cache, {"cache_implementation": cache}) for cache in CACHES),
        *(
            made("assisted", name, drafting, _assisted, assistant=assistant, drafting=drafting)
            for name, drafting in ASSISTED.items()
            if assistant is not None
        ),
        *(plain(PROMPT_LOOKUP, count, {"prompt_lookup_num_tokens": count}) for count in LOOKED_UP),
    ]


@torch.inference_mode()
def _generated(engine: Engine, prompt_ids: Sequence[int], *, config: RunConfig, **settings: Any) -> Trial:
    pair = engine.pair
    ids = torch.tensor([list(prompt_ids)], device=pair.target.device)
    clock, streamer = Stopwatch(pair.target.device), _Bursts()
    started = clock.now()
    pair.target.hf.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        **drawn_by(config.sampling, config.seed),
        max_new_tokens=config.max_new_tokens,
        eos_token_id=sorted(pair.eos) or None,
        streamer=streamer,
        **settings,
    )
    ended = clock.now()
    first = streamer.bursts[0][1]
    ends = [*(at - first for _, at in streamer.bursts[:-1]), ended - first if len(streamer.bursts) > 1 else 0.0]
    drafts, root = None if _HIDDEN & settings.keys() else 0, TokenTree([prompt_ids[-1]])
    outcomes = [
        (Outcome(root, committed=tokens, target_forwards=1, draft_forwards=drafts), t)
        for (tokens, _), t in zip(streamer.bursts, ends, strict=True)
    ]
    tallies = running(first - started, "hf", outcomes)
    return Trial(tallies[-1], tallies)


def _assisted(
    engine: Engine, prompt_ids: Sequence[int], *, config: RunConfig, assistant: Any, drafting: dict[str, float]
) -> Trial:
    """Transformers reads the settings `drafting` from the assistant's generation config."""
    before = assistant.generation_config
    assistant.generation_config = copy.deepcopy(before)
    assistant.generation_config.update(**drafting)
    try:
        return _generated(engine, prompt_ids, config=config, assistant_model=assistant)
    finally:
        assistant.generation_config = before
