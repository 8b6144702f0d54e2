"""Extreme values: the largest loss of a round, and the longest remembered text."""

import math
from collections.abc import Sequence

import pytest

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import REMEMBERED, TreeSizeController
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.draft.tree_size.loss_limit import CREDIT_A_TOKEN, MOST_CREDIT, PATIENCE, LossLimit

CALL_S = 0.01
"""Time of each draft pass and of the host, in units of a plain round."""
ROW_S = 0.1
"""Time of each row of a verification besides the root, in units of a plain round."""
SURE = (-0.05, -4.0)
LEAST_S = 1e-6


def costs(host_s: float = CALL_S) -> Costs:
    verify = RowCostCurve({rows: 1 + ROW_S * (rows - 1) for rows in range(1, 17)})
    return Costs(
        RowCostCurve({1: 1.0}),
        RowCostCurve({1: CALL_S, 16: CALL_S}),
        RowCostCurve({1: CALL_S, 16: CALL_S}),
        verify,
        RowCostCurve({1: host_s}),
    )


def with_limit(seconds: float, host_s: float = CALL_S) -> TreeSizeController:
    """A controller whose next round may take at most `seconds`."""
    budget = TreeSizeController(costs(host_s), AcceptanceModel())
    budget.credit.tokens = seconds - 1
    return budget


def round_s(rows: int, calls: int, host_s: float = CALL_S) -> float:
    """Time of a round with `calls` draft passes and `rows` verified rows."""
    return calls * CALL_S + host_s + 1 + ROW_S * (rows - 1)


# Remembered text


def chance_after(text: Sequence[int], token: int) -> float:
    """Probability of `token` as the draft's second guess; its first guess never occurred in the text."""
    budget = TreeSizeController(costs(), AcceptanceModel(), text)
    budget.drafts(1)
    budget.add_children(0, (-1, token), (-1.0, -1.3), lambda _: 2)
    return budget.probabilities[-1]


def filler(count: int) -> range:
    """Tokens that occur only once."""
    return range(1000, 1000 + count)


def test_of_a_long_prompt_the_end_is_remembered_and_not_the_beginning() -> None:
    text = [1, 2, 3, 4, *filler(REMEMBERED), 1, 2, 3, 5, 6, 1, 2, 3]
    never = chance_after(text, 70)
    assert chance_after(text, 5) > 1.5 * never
    assert chance_after(text, 4) == never


def test_a_piece_is_remembered_as_far_as_it_lies_within_so_many_tokens() -> None:
    """A repetition of four tokens counts more than one of three."""
    whole, torn, forgotten = (
        chance_after([*range(300, 400), 1, 2, 3, 4, *filler(REMEMBERED - 7 + further), 1, 2, 3], 4)
        for further in (0, 1, 3)
    )
    assert whole > torn > forgotten


# Price


def test_a_text_begins_with_the_price_of_earlier_texts() -> None:
    acceptance = AcceptanceModel()
    assert LossLimit(costs(), acceptance).price == pytest.approx(1.0)
    earlier = LossLimit(costs(), acceptance)
    for _ in range(300):
        earlier.earn(3, 1.5)
    assert LossLimit(costs(), acceptance).price == pytest.approx(2.0, rel=0.01)


def test_rounds_earn_together_what_each_earns() -> None:
    one, all_at_once = LossLimit(costs(), AcceptanceModel()), LossLimit(costs(), AcceptanceModel())
    for _ in range(4):
        one.earn(2, 1.5)
    all_at_once.earn(8, 6.0, rounds=4)
    assert all_at_once.tokens == pytest.approx(one.tokens)
    assert all_at_once.price == pytest.approx(one.price, rel=0.03)
    assert all_at_once.plain_due == one.plain_due


# Largest loss


@pytest.mark.parametrize(("spare_s", "drafts"), [(LEAST_S, True), (-LEAST_S, False)])
def test_a_round_drafts_where_the_verification_of_one_guess_can_be_staked(spare_s: float, *, drafts: bool) -> None:
    assert with_limit(round_s(rows=2, calls=1) + spare_s).drafts(1) == drafts


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize(("spare_s", "grows"), [(LEAST_S, True), (-LEAST_S, False)])
def test_a_level_grows_where_the_verification_of_a_path_through_it_can_be_staked(
    level: int, spare_s: float, *, grows: bool
) -> None:
    """The path has the root and one node per level; the first level grows without a decision."""
    budget = with_limit(round_s(rows=level + 2, calls=level + 1) + spare_s)
    assert budget.drafts(1)
    budget.add_children(0, (1, 2), SURE, lambda _: 1)
    for node in range(1, level):
        assert budget.worth_growing([node]) == [node]
        budget.add_children(node, (1, 2), SURE, lambda _: 1)
    assert budget.worth_growing([level]) == ([level] if grows else [])


def test_the_host_s_time_is_part_of_what_a_round_may_take() -> None:
    host_s, limit_s = 0.25, 1.6
    budget = with_limit(limit_s, host_s)
    assert budget.drafts(1)
    budget.add_children(0, range(9), [math.log(0.11)] * 9, lambda _: 9)
    kept = len(budget.keep())
    assert round_s(kept, 1, host_s) <= limit_s < round_s(kept + 1, 1, host_s)


# Credit


def test_credit_grows_token_by_token_while_it_waits() -> None:
    credit = LossLimit(costs(), AcceptanceModel())
    before = credit.tokens
    credit.wait(10)
    assert credit.tokens == pytest.approx(before + 10 * CREDIT_A_TOKEN)


def test_however_long_a_text_waits_its_credit_has_a_cap() -> None:
    credit = LossLimit(costs(), AcceptanceModel())
    for _ in range(3):
        credit.wait(round(MOST_CREDIT / CREDIT_A_TOKEN))
    assert credit.tokens == MOST_CREDIT


def test_however_much_was_gained_credit_has_a_cap() -> None:
    credit = LossLimit(costs(), AcceptanceModel())
    credit.earn(100, 10.0)
    assert credit.tokens == MOST_CREDIT


def test_rounds_without_a_draft_add_to_credit_up_to_the_cap() -> None:
    budget = TreeSizeController(costs(), AcceptanceModel())
    budget.credit.tokens, budget.credit.may_pay = MOST_CREDIT - CREDIT_A_TOKEN / 2, False
    assert not budget.drafts(PATIENCE - 1)
    budget.learn([7])
    assert budget.credit.tokens == MOST_CREDIT
