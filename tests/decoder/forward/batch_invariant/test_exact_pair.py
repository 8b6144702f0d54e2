"""Exact and inexact copies of a pair do not share costs, and exact mode refuses models with wrong logits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from decoder.engine import Engine
from decoder.errors import PairError
from decoder.forward.families.model import attend
from tests.decoder.makers import TinyModels


@pytest.mark.parametrize("twin", [Engine.batch_invariant, Engine.fastest])
def test_a_twin_begins_with_no_costs(tiny_models: TinyModels, twin: Callable[[Engine], Engine]) -> None:
    known: Any = {512: "costs"}
    pair = replace(tiny_models.loaded(tiny_models.pair("neox"), "bfloat16"), costs=known)
    made = twin(pair)
    assert not made.costs
    assert (made.acceptance, made.threads) == (pair.acceptance, pair.threads)


def test_rows_that_agree_among_themselves_but_not_with_plain_text_are_refused(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(*parts: Any) -> Tensor:
        return 2 * attend(*parts)

    monkeypatch.setattr("decoder.forward.batch_invariant.attention.attend", doubled)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        tiny_models.loaded(tiny_models.pair("gpt2"), "bfloat16").batch_invariant()
