"""Most rounds of a text without repetitions follow an earlier decision, within its limits on path probabilities."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from decoder.draft.growth import Children, grow
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.draft.tree_size.cost_model import SETTLED, Costs, RowCostCurve
from decoder.draft.tree_size.drafted_round import LookupPauses
from decoder.draft.tree_size.following_rounds import (
    FURTHER,
    MOST_FOLLOWING,
    FollowingRounds,
    PathLimits,
    path_limits,
    within,
)
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


def test_no_more_rounds_without_an_accepted_token_follow_than_there_is_credit_for() -> None:
    sizes = text(credit=2.0)
    kept, count = decide(sizes, [1]), 0
    lost_in_a_round = sizes.costs.host.seconds(1) + 0.1 + sizes.costs.verify.seconds(len(kept)) - 1
    while follow(sizes, tokens=1):
        count += 1
    assert count == int(sizes.credit.tokens / lost_in_a_round) < MOST_FOLLOWING


def test_the_credit_of_rounds_that_followed_is_settled_by_the_next_decision() -> None:
    sizes = text(credit=4.0)
    decide(sizes, [1])
    credit, rounds = sizes.credit.tokens, 0
    while follow(sizes, tokens=1):
        rounds += 1
        assert sizes.credit.tokens == credit
    decide(sizes, [1])
    assert sizes.credit.tokens < credit - 0.2 * rounds


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


def test_nodes_below_the_least_path_probability_are_not_drafted() -> None:
    rule = replace(RULE, budget=replace(RULE.budget, best=False, least=0.3))
    logprobs = [math.log(0.6), math.log(0.31)]
    tree = TokenTree([1])
    grow(tree, rule, lambda _tree, nodes, _growth: [Children([5, 6], logprobs)] * len(nodes), deepest=4)
    assert tree.depths == [0, 1, 1, 2]
    assert tree.parents == [-1, 0, 0, 1]


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


def test_a_decision_ends_the_plain_rounds_that_follow_and_while_lookups_draft_every_round_is_decided() -> None:
    sizes = hopeless()
    sizes.pauses.gain = 0.5
    assert not sizes.stay_plain()
    sizes.pauses.gain = 0.0
    assert not sizes.stay_plain()
    assert plain(hopeless(gain=0.5)) == 0


# Which rounds follow


@pytest.mark.parametrize(
    ("sizes", "burst", "count"),
    [
        pytest.param(lambda: text(), [7, 1], MOST_FOLLOWING, id="after a decision"),
        pytest.param(lambda: text(credit=2.0), [1], MOST_FOLLOWING, id="accepted tokens let further rounds follow"),
        pytest.param(lambda: text(gain=0.5), [7, 1], 0, id="not while lookups draft"),
        pytest.param(lambda: without_lookups(text(gain=0.5)), [7, 1], MOST_FOLLOWING, id="unless these are forbidden"),
        pytest.param(lambda: text(updates=SETTLED - 2), [7, 1], 0, id="not before the costs are settled"),
    ],
)
def test_rounds_follow_a_decision_and_then_a_round_is_decided_again(
    sizes: Callable[[], TreeSizeController], burst: list[int], count: int
) -> None:
    decided = sizes()
    assert following(decided) == 0
    for _ in range(2):
        decide(decided, burst)
        assert following(decided) == count


def without_lookups(sizes: TreeSizeController) -> TreeSizeController:
    sizes.pauses.allowed = False
    return sizes


@pytest.mark.parametrize("timed", [True, False])
def test_costs_learn_the_times_of_rounds_that_followed_but_not_of_a_disturbed_round(*, timed: bool) -> None:
    sizes = text()
    decide(sizes, [7, 1])
    draft_s, verify_s = sizes.costs.draft.seconds(1), sizes.costs.verify.seconds(3)
    while follow(sizes):
        if timed:
            sizes.record_times(0.4, 3.0, 3.5)
    decide(sizes, [7, 1])
    assert (sizes.costs.draft.seconds(1) > 1.1 * draft_s) == timed
    assert (sizes.costs.verify.seconds(3) > 1.1 * verify_s) == timed
    assert timed or sizes.costs.verify.seconds(3) == verify_s


# Limits on path probabilities


def test_a_turned_knob_is_in_force_at_once_and_a_rule_is_never_widened_by_limits() -> None:
    rounds, limits = FollowingRounds(), PathLimits(grown=0.5, kept=0.2)
    rounds.begin(limits, credit=5.0, round_tokens=1.2)
    first, turned = rounds.next_rule(RULE), replace(RULE, growth=replace(RULE.growth, deepest=3))
    assert first == within(RULE, limits)
    assert rounds.next_rule(RULE) is first
    narrowed = rounds.next_rule(turned)
    assert narrowed
    assert narrowed.growth.deepest == 3
    strict = within(replace(RULE, growth=replace(RULE.growth, stop=0.8, deep=0.9)), limits).growth
    assert (strict.stop, strict.deep) == (0.8, 0.9)


def test_a_node_gets_children_where_their_expected_tokens_and_further_levels_exceed_the_prices() -> None:
    """Rows are cheap up to the first one that costs more than the mean."""
    rising = [1.0, 1.1, 1.2]
    one, both = path_limits((0.8, 0.1), 0.2, rising), path_limits((0.4, 0.4), 0.2, rising)
    grown = FURTHER * (0.2 + 0.1), FURTHER * (0.2 + 2 * 0.1)
    assert (one.grown * 0.8, both.grown * 0.8) == pytest.approx(grown)
    assert one.kept == both.kept == pytest.approx(0.1)
    dear = path_limits((0.1, 0.1), 2.0, [1.0, 4.0])
    assert (dear.grown, dear.kept) == (1.0, 1.0)
    steps = [1.0, 1.05, 1.1, 1.4, 1.41], [1.0, 1.3, 1.31, 1.32]
    assert [path_limits((0.8, 0.1), 0.2, seconds).rows for seconds in steps] == [3, 1]


@pytest.mark.parametrize(
    ("probabilities", "scale", "kept"),
    [
        pytest.param([0.9, 0.8, 0.2], 3.0, [0, 1, 2], id="not below the price of its row"),
        pytest.param([0.9, 0.05, 0.8], 3.0, [0, 1, 3], id="its siblings stay"),
        pytest.param([0.1, 0.1, 0.1], 3.0, [0], id="none is worth its row"),
        pytest.param([0.9, 0.2], None, [0, 1, 2], id="a tree of cheap rows is verified whole"),
    ],
)
def test_a_node_is_verified_where_it_is_worth_its_row(
    probabilities: list[float], scale: float | None, kept: list[int]
) -> None:
    sizes = text()
    if scale:
        sizes.costs.verify.scale(scale)
    else:
        decide(sizes, [7, 1])
    assert list(sizes.worth_verifying([0.0, *map(math.log, probabilities)])) == kept
