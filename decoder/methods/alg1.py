"""alg1: DynaTree's Algorithm 1 as printed, under dynatree's parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decoder.knobs import Turnable
from decoder.methods.method import Method

if TYPE_CHECKING:
    from decoder.models.pair import Pair
    from decoder.session.protocol import Session


def _opened(pair: "Pair", prompt_ids: Sequence[int], run: Any, _rules: Turnable | None) -> "Session":
    from decoder.session.algorithm1 import Algorithm1Session  # noqa: PLC0415 - imports torch

    return Algorithm1Session(pair, prompt_ids, run)


METHOD = Method(
    "alg1",
    "DynaTree's Algorithm 1 as printed: two target passes",
    obeys="dynatree",
    opened=_opened,
    root_is_drafted=True,
)
