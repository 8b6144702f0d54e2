"""hf: transformers' own assisted generation, as one more baseline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decoder.knobs import Turnable
from decoder.methods.method import Method

if TYPE_CHECKING:
    from decoder.models.pair import Pair
    from decoder.session.protocol import Session


def _opened(pair: "Pair", prompt_ids: Sequence[int], run: Any, _rules: Turnable | None) -> "Session":
    from decoder.session.hf_assisted import AssistedSession  # noqa: PLC0415 - imports torch

    return AssistedSession(pair, prompt_ids, run)


METHOD = Method("hf", "transformers' assisted generation", opened=_opened, by_module=True)
