"""A pair is exact or it is not: neither goes on with what rounds of the other have cost, and no wrong text is exact."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from decoder.errors import PairError
from decoder.exact_pair import exact_pair, inexact_pair
from decoder.forward.families.attention import gathered
from decoder.models.pair import Pair
from tests.decoder.makers import Lab


@pytest.mark.parametrize("twin", [exact_pair, inexact_pair])
def test_a_twin_begins_with_no_costs_and_with_seats_of_its_own(lab: Lab, twin: Callable[[Pair], Pair]) -> None:
    pair = replace(lab.loaded(lab.pair("neox"), "bfloat16"), costs={512: "costs"})
    made = twin(pair)
    assert not made.costs
    assert made.seats is not pair.seats
    assert (made.calibration, made.threads) == (pair.calibration, pair.threads)


def test_rows_that_agree_among_themselves_but_not_with_plain_text_are_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(*parts: Any) -> Tensor:
        return 2 * gathered(*parts)

    monkeypatch.setattr("decoder.forward.batch_invariant.attention.gathered", doubled)
    with pytest.raises(PairError, match="computes other logits for a draft tree"):
        exact_pair(lab.loaded(lab.pair("neox"), "bfloat16"))
