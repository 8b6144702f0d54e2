"""Most rounds of a text without repetitions follow an earlier decision, within its limits on path probabilities."""

import math
from dataclasses import replace

import pytest

from decoder.draft.growth import Children, grow
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.draft.tree_size.cost_model import SETTLED, Costs, RowCostCurve
from decoder.draft.tree_size.following_rounds import (
    FURTHER,
    MOST_FOLLOWING,
    FollowingRounds,
    PathLimits,
    path_limits,
    within,
)
from decoder.draft.tree_size.lookup_pauses import LookupPauses
from decoder.draft.tree_size.loss_limit import MOST_CREDIT
from decoder.methods.auto import Auto
from decoder.tree import TokenTree

RULE = Auto().rule()
GUESSES = (-0.1, -3.0)


def text(credit: float = MOST_CREDIT, gain: float = 0.0, updates: int = SETTLED) -> TreeSizeController:
    """A text without repetitions, whose costs are settled."""
    costs = Costs(
        RowCostCurve({1: 1.0}),
        RowCostCurve({1: 0.1}),
        RowCostCurve({1: 0.1}),
        RowCostCurve({1: 1.0, 9: 2.0}),
        RowCostCurve({1: 0.01}),
    )
    for _ in range(updates):
        costs.verify.learn([1], 1.0)
    sizes = TreeSizeController(costs, AcceptanceModel(), pauses=LookupPauses(gain))
    sizes.credit.tokens = credit
    return sizes


def decide(sizes: TreeSizeController, burst: list[int]) -> list[int]:
    """A decided round that drafts two guesses after the root, of which the first is 7; returns the kept nodes."""
    assert sizes.source(1, None) == "draft"
    sizes.add_children(0, (7, 8), GUESSES, lambda _: 2)
    kept = sizes.keep()
    sizes.learn(burst)
    return kept


def follow(sizes: TreeSizeController, tokens: int = 2) -> bool:
    """Whether the next round follows; if so, it drafts and verifies two nodes."""
    if sizes.follow(RULE) is None:
        return False
    sizes.record_followed([1, 1], 3)
    sizes.learn([7] * tokens)
    return True


def following(sizes: TreeSizeController) -> int:
    count = 0
    while follow(sizes):
        count += 1
    return count


def test_rounds_follow_a_decision_and_then_a_round_is_decided_again() -> None:
    sizes = text()
    assert following(sizes) == 0
    decide(sizes, [7, 1])
    assert following(sizes) == MOST_FOLLOWING
    decide(sizes, [7, 1])
    assert following(sizes) == MOST_FOLLOWING


def test_no_more_rounds_without_an_accepted_token_follow_than_there_is_credit_for() -> None:
    sizes = text(credit=2.0)
    kept, count = decide(sizes, [1]), 0
    lost_in_a_round = sizes.costs.host.seconds(1) + 0.1 + sizes.costs.verify.seconds(len(kept)) - 1
    while follow(sizes, tokens=1):
        count += 1
    assert count == int(sizes.credit.tokens / lost_in_a_round) < MOST_FOLLOWING


def test_accepted_tokens_let_further_rounds_follow() -> None:
    sizes = text(credit=2.0)
    decide(sizes, [1])
    assert following(sizes) == MOST_FOLLOWING


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(text(gain=0.5), id="while lookups draft"),
        pytest.param(text(updates=SETTLED - 2), id="before the costs are settled"),
    ],
)
def test_every_round_is_decided(sizes: TreeSizeController) -> None:
    decide(sizes, [7, 1])
    assert following(sizes) == 0


def test_the_credit_of_rounds_that_followed_is_settled_by_the_next_decision() -> None:
    sizes = text(credit=4.0)
    decide(sizes, [1])
    credit, rounds = sizes.credit.tokens, 0
    while follow(sizes, tokens=1):
        rounds += 1
        assert sizes.credit.tokens == credit
    decide(sizes, [1])
    assert sizes.credit.tokens < credit - 0.2 * rounds


def test_costs_learn_the_times_of_rounds_that_followed() -> None:
    sizes = text()
    decide(sizes, [7, 1])
    draft_s, verify_s = sizes.costs.draft.seconds(1), sizes.costs.verify.seconds(3)
    while follow(sizes):
        sizes.record_times(0.4, 3.0, 3.5)
    decide(sizes, [7, 1])
    assert sizes.costs.draft.seconds(1) > 1.1 * draft_s
    assert sizes.costs.verify.seconds(3) > 1.1 * verify_s


def test_costs_learn_nothing_of_a_disturbed_round() -> None:
    sizes = text()
    decide(sizes, [7, 1])
    verify_s = sizes.costs.verify.seconds(3)
    following(sizes)
    decide(sizes, [7, 1])
    assert sizes.costs.verify.seconds(3) == verify_s


def test_a_round_without_room_for_a_draft_teaches_nothing_of_drafts() -> None:
    sizes = text()
    decide(sizes, [7, 1])
    draft_s, catch_up_s = sizes.costs.draft.seconds(1), sizes.costs.catch_up.seconds(1)
    assert sizes.follow(RULE)
    sizes.record_followed([], 1)
    sizes.learn([7])
    sizes.record_times(1e-6, 1.0, 1.01)
    following(sizes)
    decide(sizes, [7, 1])
    assert (sizes.costs.draft.seconds(1), sizes.costs.catch_up.seconds(1)) == (draft_s, catch_up_s)


def test_a_turned_knob_is_in_force_at_once() -> None:
    rounds = FollowingRounds()
    rounds.begin(PathLimits(grown=0.5, kept=0.2), credit=5.0, round_tokens=1.2)
    first, turned = rounds.next_rule(RULE), replace(RULE, growth=replace(RULE.growth, deepest=3))
    assert first == within(RULE, PathLimits(grown=0.5, kept=0.2))
    assert rounds.next_rule(RULE) is first
    narrowed = rounds.next_rule(turned)
    assert narrowed
    assert narrowed.growth.deepest == 3


def test_a_rule_is_never_widened_by_limits() -> None:
    strict = replace(RULE, growth=replace(RULE.growth, stop=0.8, deep=0.9))
    limited = within(strict, PathLimits(grown=0.5, kept=0.2))
    assert (limited.growth.stop, limited.growth.deep) == (0.8, 0.9)


def test_a_node_gets_children_where_their_expected_tokens_and_further_levels_exceed_the_prices() -> None:
    rising = [1.0, 1.1, 1.2]
    limits = path_limits((0.8, 0.1), 0.2, rising)
    assert limits.grown * 0.8 == pytest.approx(FURTHER * (0.2 + 0.1))
    both = path_limits((0.4, 0.4), 0.2, rising)
    assert both.grown * 0.8 == pytest.approx(FURTHER * (0.2 + 2 * 0.1))
    assert limits.kept == both.kept == pytest.approx(0.1)
    dear = path_limits((0.1, 0.1), 2.0, [1.0, 4.0])
    assert (dear.grown, dear.kept) == (1.0, 1.0)


def test_rows_are_cheap_up_to_the_first_one_that_costs_more_than_the_mean() -> None:
    assert path_limits((0.8, 0.1), 0.2, [1.0, 1.05, 1.1, 1.4, 1.41]).rows == 3
    assert path_limits((0.8, 0.1), 0.2, [1.0, 1.3, 1.31, 1.32]).rows == 1


def test_a_tree_of_cheap_rows_is_verified_whole() -> None:
    sizes = text()
    decide(sizes, [7, 1])
    path_logprobs = [0.0, *map(math.log, [0.9, 0.2])]
    assert list(sizes.worth_verifying(path_logprobs)) == [0, 1, 2]


def test_nodes_below_the_least_path_probability_are_not_drafted() -> None:
    rule = replace(RULE, budget=replace(RULE.budget, best=False, least=0.3))
    logprobs = [math.log(0.6), math.log(0.31)]
    tree = TokenTree([1])
    grow(tree, rule, lambda _tree, nodes, _growth: [Children([5, 6], logprobs)] * len(nodes), deepest=4)
    assert tree.depths == [0, 1, 1, 2]
    assert tree.parents == [-1, 0, 0, 1]


@pytest.mark.parametrize(
    ("probabilities", "kept"),
    [
        pytest.param([0.9, 0.8, 0.2], [0, 1, 2], id="below the price of its row"),
        pytest.param([0.9, 0.05, 0.8], [0, 1, 3], id="and its siblings stay"),
        pytest.param([0.1, 0.1, 0.1], [0], id="and none is worth its row"),
    ],
)
def test_a_node_is_not_verified(probabilities: list[float], kept: list[int]) -> None:
    sizes = text()
    sizes.costs.verify.scale(3.0)
    path_logprobs = [0.0, *map(math.log, probabilities)]
    assert sizes.worth_verifying(path_logprobs) == kept


def hopeless(gain: float = 0.0) -> TreeSizeController:
    """A text without credit, after its first plain round; the draft has guessed nothing right so far."""
    sizes = text(credit=0.0, gain=gain)
    sizes.credit.may_pay = False
    assert not sizes.stay_plain()
    assert sizes.source(1, None) == "plain"
    sizes.learn([7])
    return sizes


def plain(sizes: TreeSizeController) -> int:
    """Number of plain rounds until a decision is needed."""
    count = 0
    while sizes.stay_plain():
        sizes.learn([7])
        sizes.record_times(0.0, 1.0, 1.0)
        count += 1
    return count


def test_plain_rounds_follow_a_plain_round_until_a_probe_is_due() -> None:
    sizes = hopeless()
    count = plain(sizes)
    assert 0 < count < MOST_FOLLOWING
    assert sizes.source(2 + count, None) == "draft"
    assert hopeless().source(1 + count, None) == "plain"


def test_plain_rounds_that_follow_earn_the_credit_of_plain_rounds() -> None:
    together, one_by_one = hopeless(), hopeless()
    for _ in range(plain(together)):
        one_by_one.credit.wait(1)
    assert together.credit.tokens == pytest.approx(one_by_one.credit.tokens)
    assert together.credit.price == pytest.approx(one_by_one.credit.price, rel=0.05)


def test_every_plain_round_is_decided_while_lookups_draft() -> None:
    assert plain(hopeless(gain=0.5)) == 0


def test_a_decision_ends_the_plain_rounds_that_follow() -> None:
    sizes = hopeless()
    sizes.pauses.gain = 0.5
    assert not sizes.stay_plain()
    sizes.pauses.gain = 0.0
    assert not sizes.stay_plain()


def test_rounds_follow_where_lookups_are_not_allowed() -> None:
    sizes = text(gain=0.5)
    sizes.pauses.allowed = False
    decide(sizes, [7, 1])
    assert following(sizes) == MOST_FOLLOWING
