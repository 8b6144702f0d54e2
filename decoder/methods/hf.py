"""hf: assisted generation by the library transformers, as a baseline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from decoder.methods.method import Method

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session


def _opened(engine: "Engine", prompt_ids: Sequence[int], max_new_tokens: int, _rules: None) -> "Session":
    from decoder.session.hf_assisted import AssistedSession

    return AssistedSession(engine.pair, prompt_ids, max_new_tokens, engine.sampling.latest, engine.seed)


METHOD = Method(
    "hf",
    "transformers' assisted generation",
    opened=_opened,
    own_noise=True,
    by_module=True,
    needs_model=True,
    whole_target=True,
)
