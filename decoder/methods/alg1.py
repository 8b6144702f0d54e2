"""alg1: DynaTree's Algorithm 1 as printed, with the parameters of `dynatree`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from decoder.methods.method import Method
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session


def _opened(engine: "Engine", prompt_ids: Sequence[int], max_new_tokens: int, rules: Rules) -> "Session":
    from decoder.session.host import Algorithm1Session

    noise = engine.gumbel_noise()
    return Algorithm1Session(engine.pair, prompt_ids, max_new_tokens, rules, noise, engine.draft_probabilities(noise))


METHOD = Method(
    "alg1",
    "DynaTree's Algorithm 1 as printed: two target passes a round",
    obeys="dynatree",
    opened=_opened,
    root_is_drafted=True,
    needs_model=True,
)
