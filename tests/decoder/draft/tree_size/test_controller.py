"""A round drafts the tree with the most tokens per second. Time is simulated, so no test depends on the machine."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.tree_size.acceptance_model import MOST_GAINED, AcceptanceModel
from decoder.draft.tree_size.controller import MOST_NODES, REMEMBERED, TreeSizeController
from decoder.draft.tree_size.cost_model import SETTLED, Costs, RowCostCurve
from decoder.draft.tree_size.drafted_round import most_worth
from decoder.draft.tree_size.loss_limit import (
    CREDIT,
    CREDIT_A_TOKEN,
    MOST_CREDIT,
    MUCH,
    PATIENCE,
    PLAIN_EVERY,
    LossLimit,
)

CHEAP, FLAT, STEEP = {1: 0.22, 8: 0.3, 32: 0.5}, {1: 0.1, 32: 0.1}, {1: 0.6, 32: 1.0}
"""Time of a draft level by number of rows, in units of a plain round."""
VERIFY = {
    "packed weights": {1: 1.0, 2: 1.1, 4: 1.27, 8: 1.5, 16: 1.95, 32: 3.1},
    "a large GPU": {1: 1.0, 64: 1.1},
    "plain weights": {1: 1.0, 2: 1.5, 4: 2.5, 8: 4.0, 16: 8.0},
    "buckets": {1: 1.0, 2: 1.3, 8: 1.3, 9: 2.0, 16: 2.0},
}
LEVEL = {"packed weights": CHEAP, "a large GPU": FLAT, "plain weights": CHEAP, "buckets": STEEP}
MACHINES = tuple(VERIFY)
USUAL, FREE_ROWS = "packed weights", "a large GPU"
DEEP = {"packed weights": 12, "a large GPU": 12, "plain weights": 3, "buckets": 7}
"""Depth to which an always accepted draft pays."""
CHILDREN = 3
DEEPEST = 12
OTHER = -1
"""A token outside the draft's guesses."""


def costs(machine: str) -> Costs:
    return Costs(
        RowCostCurve({1: 1.0}),
        RowCostCurve(LEVEL[machine]),
        RowCostCurve(LEVEL[machine]),
        RowCostCurve(VERIFY[machine]),
        RowCostCurve({1: 0.04}),
    )


def controller(
    machine: str = USUAL,
    *,
    text: Sequence[int] = (),
    known: AcceptanceModel | None = None,
    credit: float | None = None,
) -> TreeSizeController:
    found = TreeSizeController(costs(machine), known or AcceptanceModel(), text)
    if credit is not None:
        found.credit.tokens = credit
    return found


@dataclass
class Text:
    """A simulated text and draft model; times are computed from the costs."""

    machine: str
    guesses: Callable[[random.Random], Sequence[float]]
    """Draws the draft's log-probabilities of the best tokens after a node."""
    chosen: Callable[[random.Random, Sequence[float]], int]
    """Draws the target's choice among these tokens; OTHER for none of them."""
    seed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    behind: int = 1
    """Rows that the draft has not read."""
    drafted: list[bool] = field(default_factory=list)
    """For each round, whether it drafted."""
    depths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.budget = controller(self.machine)
        self.truth = costs(self.machine)

    def decode(self, count: int) -> "Text":
        """Decodes a number of further tokens, round by round."""
        ends = self.tokens + count
        while self.tokens < ends:
            if self.budget.drafts(self.behind):
                self._probe()
                self._draft()
                self.behind = 1
            else:
                self.behind += 1
                self.drafted.append(False)
                self._pass(1, 1.0)
                self.budget.learn([OTHER])
        return self

    def _probe(self) -> None:
        if self.behind > 1:
            guesses = [self.guesses(self.random) for _ in range(self.behind - 1)]
            text = [self.chosen(self.random, logprobs) for logprobs in guesses]
            self.budget.probe_draft([(range(CHILDREN), logprobs) for logprobs in guesses], text)

    def _draft(self) -> None:
        budget, tree = self.budget, [(-1, OTHER)]
        calls, level, depth = [self.behind], [0], 0
        outcomes: dict[int, int] = {}
        while level and depth < DEEPEST:
            parents = budget.worth_growing(level) if depth else level
            calls += [len(parents)] if depth and parents else []
            level = []
            for parent in parents:
                logprobs = self.guesses(self.random)
                outcomes[parent] = self.chosen(self.random, logprobs)
                budget.add_children(parent, range(CHILDREN), logprobs, lambda _: CHILDREN)
                level += range(len(tree), len(tree) + CHILDREN)
                tree += [(parent, token) for token in range(CHILDREN)]
            depth += bool(parents)
        kept = budget.keep()
        assert all(tree[node][0] in kept for node in kept[1:])
        node, burst = 0, list[int]()
        while (token := outcomes.get(node, OTHER)) != OTHER:
            child = tree.index((node, token))
            burst.append(token)
            if child not in kept:
                break
            node = child
        else:
            burst.append(OTHER)
        self.drafted.append(True)
        self.depths.append(depth)
        self._pass(len(burst), sum(map(self.truth.draft.seconds, calls)) + self.truth.verify.seconds(len(kept)) + 0.04)
        budget.learn(burst)

    def _pass(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    @property
    def rate(self) -> float:
        """Tokens per second, relative to plain decoding."""
        return self.tokens / self.seconds


def sure(_: random.Random) -> Sequence[float]:
    """A confident draft."""
    return (-0.05, -4.0, -5.0)


def mixed(luck: random.Random) -> Sequence[float]:
    """A draft that alternates between confidence and doubt."""
    return luck.choice([(-0.05, -4.0, -5.0), (-0.7, -1.5, -2.5), (-1.6, -1.9, -2.1)])


def never(_luck: random.Random, _logprobs: Sequence[float]) -> int:
    return OTHER


def always(_luck: random.Random, _logprobs: Sequence[float]) -> int:
    return 0


def one_in(count: int) -> Callable[[random.Random, Sequence[float]], int]:
    return lambda luck, _: 0 if luck.random() < 1 / count else OTHER


# Selection of nodes


@given(
    gains=st.lists(st.floats(0, 1), max_size=7),
    price=st.floats(0, 3),
    steps=st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_no_other_choice_of_things_is_worth_more(gains: list[float], price: float, steps: list[float]) -> None:
    seconds = list(itertools.accumulate(steps))

    def worth(taken: Sequence[int]) -> float:
        return sum(gains[index] for index in taken) - price * seconds[len(taken)]

    every = itertools.chain.from_iterable(itertools.combinations(range(len(gains)), n) for n in range(len(gains) + 1))
    assert worth(most_worth(gains, price, seconds)) == pytest.approx(max(map(worth, every)))


@given(data=st.data())
def test_of_all_subtrees_the_kept_one_brings_most_beyond_the_price_of_its_time(data: st.DataObject) -> None:
    budget, parents = controller(data.draw(st.sampled_from(MACHINES))), [-1]
    budget.drafts(1)
    for node in range(2):
        logprobs = sorted(data.draw(st.lists(st.floats(-6, -0.1), min_size=3, max_size=3)), reverse=True)
        budget.add_children(node, range(3), logprobs, lambda _: 3)
        parents += [node] * 3
    chances, verify = budget.probabilities, budget.costs.verify

    def worth(nodes: Sequence[int]) -> float:
        return sum(chances[node] for node in nodes) - budget.credit.price * verify.seconds(1 + len(nodes))

    drafted = range(1, len(parents))
    subsets = itertools.chain.from_iterable(itertools.combinations(drafted, n) for n in range(len(parents)))
    subtrees = [nodes for nodes in subsets if all(parents[node] in (0, *nodes) for node in nodes)]
    root, *kept = budget.keep()
    assert root == 0
    assert tuple(kept) in subtrees
    assert worth(kept) == pytest.approx(max(map(worth, subtrees)))


def test_a_tree_never_has_more_nodes_than_there_is_room_for() -> None:
    level = RowCostCurve({1: 1e-6})
    budget = TreeSizeController(
        Costs(RowCostCurve({1: 1.0}), level, level, RowCostCurve({1: 1.0, 64: 1.0}), RowCostCurve({1: 0.01})),
        AcceptanceModel(),
    )
    budget.drafts(1)
    for node in range(40):
        budget.add_children(node, range(3), (-1.0, -1.1, -1.2), lambda _: 3)
    assert len(budget.keep()) - 1 == MOST_NODES


# Texts on which drafting never pays


@pytest.mark.parametrize(
    ("guesses", "chosen", "tokens", "seed"),
    [
        *((guesses, never, 256, seed) for guesses in (sure, mixed) for seed in range(3)),
        pytest.param(mixed, one_in(12), 512, 0, id="a draft that is seldom right"),
    ],
)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_draft_that_is_wrong_costs_less_than_three_percent(
    machine: str,
    guesses: Callable[[random.Random], Sequence[float]],
    chosen: Callable[[random.Random, Sequence[float]], int],
    tokens: int,
    seed: int,
) -> None:
    assert Text(machine, guesses, chosen, seed).decode(tokens).rate > 0.97


@pytest.mark.parametrize("machine", MACHINES)
def test_when_the_text_becomes_easy_it_is_drafted_again(machine: str) -> None:
    text = Text(machine, sure, never).decode(300)
    text.chosen = always
    text.decode(400)
    assert sum(text.drafted[-10:]) >= 9


@pytest.mark.parametrize("believed", [1.3, 2.0])
def test_a_plain_round_that_was_measured_too_dear_is_seen_through(believed: float) -> None:
    """Otherwise useless drafting would seem free."""
    text = Text("packed weights", sure, never)
    text.budget = TreeSizeController(replace(text.truth, plain=RowCostCurve({1: believed})), AcceptanceModel())
    assert text.decode(256).rate > 0.97


# Texts on which drafting pays


def test_even_where_all_goes_well_a_plain_round_is_run_now_and_then() -> None:
    text = Text("packed weights", sure, always).decode(4000)
    plain = [number for number, drafted in enumerate(text.drafted) if not drafted]
    assert {after - before for before, after in itertools.pairwise(plain)} == {PLAIN_EVERY}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_draft_that_is_always_right_is_followed_deeply(machine: str) -> None:
    text = Text(machine, sure, always).decode(400)
    assert min(text.depths[-20:]) >= DEEP[machine]


def chain(machine: str, accepted: float, length: int) -> float:
    """Tokens per second of a chain whose tokens all have the same acceptance probability."""
    truth = costs(machine)
    tokens = sum(accepted**depth for depth in range(length + 1))
    return tokens / (length * truth.draft.seconds(1) + truth.verify.seconds(length + 1) + 0.04)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("one_in_", [1.25, 1.6, 3])
def test_it_is_about_as_fast_as_the_best_chain_where_every_guess_is_as_likely(machine: str, one_in_: float) -> None:
    chances = 1 / one_in_
    text = Text(machine, sure, lambda luck, _: 0 if luck.random() < chances else OTHER).decode(2000)
    best = max(1.0, *(chain(machine, chances, length) for length in range(1, 13)))
    assert text.rate > 0.93 * best


# Learning


def test_costs_follow_the_rounds() -> None:
    budget = controller()
    for _ in range(PLAIN_EVERY - 1):
        assert budget.drafts(1)
        budget.add_children(0, range(3), (-0.1, -3.0, -4.0), lambda _: 3)
        assert budget.keep() == [0, 1]
        budget.learn([0, 0])
        budget.record_times(draft_s=0.3, verify_s=1.6, round_s=2.0)
    known = budget.costs
    found = (known.catch_up.seconds(1), known.verify.seconds(2), known.host.seconds(1))
    assert found == pytest.approx((0.3, 1.6, 0.1), rel=0.05)


def verified_in(seconds: float, rounds: int, known: Costs) -> float:
    """Learnt time of a plain round after a number of rounds whose verifications take `seconds`."""
    for _ in range(rounds):
        budget = TreeSizeController(known, AcceptanceModel())
        assert budget.drafts(1)
        budget.add_children(0, range(3), (-0.1, -3.0, -4.0), lambda _: 3)
        assert budget.keep() == [0, 1]
        budget.record_times(draft_s=0.22, verify_s=seconds, round_s=seconds + 0.3)
    return known.plain.seconds(1)


def test_plain_rounds_are_taken_to_slow_down_with_verification() -> None:
    known = costs("packed weights")
    assert verified_in(1.1, SETTLED, known) == 1.0, "corrections of what was measured beforehand change nothing"
    assert verified_in(2.2, 60, known) > 1.5


def test_a_plain_round_tells_what_plain_rounds_cost() -> None:
    budget = controller(credit=-1.0)
    for _ in range(50):
        assert not budget.drafts(1)
        budget.record_times(draft_s=0.0, verify_s=1.9, round_s=2.0)
    assert budget.costs.plain.seconds(1) == pytest.approx(2.0, rel=0.05)
    assert budget.costs.verify.seconds(1) == 1.0


def kept_with(credit: float) -> list[int]:
    budget = controller(credit=credit)
    budget.drafts(PATIENCE)
    budget.add_children(0, range(3), (-1.0, -1.1, -1.2), lambda _: 3)
    return budget.keep()


def test_no_more_is_verified_than_there_is_credit_for() -> None:
    truth, kept = costs(USUAL), kept_with(0.6)
    assert len(kept_with(12.0)) == 4
    assert 1 < len(kept) < 4
    assert truth.catch_up.seconds(PATIENCE) + truth.verify.seconds(len(kept)) + 0.04 <= 1.6
    assert kept_with(-1.0) == [0]


def test_a_path_s_chance_is_that_of_all_its_nodes() -> None:
    budget = controller(FREE_ROWS)
    budget.drafts(1)
    budget.add_children(0, (5, 6), (-1.0, -1.3), lambda _: 2)
    budget.add_children(1, (7, 8), (-1.0, -1.3), lambda _: 2)
    first, second, _ = budget.acceptance.shares((-1.0, -1.3))
    assert budget.probabilities == pytest.approx([1, first, second, first * first, first * second])


def test_a_token_that_the_draft_thought_of_but_did_not_draft_ends_the_path() -> None:
    budget, alone = controller(FREE_ROWS), AcceptanceModel()
    budget.drafts(1)
    budget.add_children(0, range(3), (-1.0, -1.3, -1.4), lambda _: 1)
    budget.add_children(1, range(3), (-0.1, -3.0, -4.0), lambda _: 3)
    budget.keep()
    budget.learn([2, 0])
    alone.learn((-1.0, -1.3, -1.4), alone.shares((-1.0, -1.3, -1.4)), 2)
    found = budget.acceptance
    assert (found.sharpness, found.undrafted) == (alone.sharpness, alone.undrafted)


# What the text has said before


def drafted_after(text: Sequence[int], *levels: Sequence[int]) -> list[float]:
    """Path probabilities of a chain of second-best tokens; their best siblings never occurred in the text."""
    budget, chances = controller(FREE_ROWS, text=text), list[float]()
    budget.drafts(1)
    for level in levels:
        budget.add_children(2 * len(chances), level, (-1.0, -1.3), lambda _: 2)
        chances.append(budget.probabilities[-1])
    return chances


def test_a_path_that_goes_on_as_the_text_did_before_is_likelier_and_one_that_leaves_it_unlikelier() -> None:
    said_again = drafted_after([1, 2, 3, 4, 5, 1, 2], (70, 3), (70, 4))
    never_said = drafted_after([1, 2, 3, 4, 5, 1, 2], (70, 71), (70, 72))
    assert said_again[0] > 1.5 * never_said[0]
    assert said_again[1] / said_again[0] > 1.5 * never_said[1] / never_said[0]
    assert drafted_after([*range(40), *range(36)], (70, 71))[0] < 0.8 * drafted_after([*range(76)], (90, 91))[0]


def test_what_was_committed_can_be_said_again() -> None:
    budget, chances = controller(FREE_ROWS, text=[1, 2, 3]), []
    for _ in range(2):
        budget.drafts(1)
        budget.add_children(0, (4, 9), (-1.0, -1.3), lambda _: 2)
        chances.append(budget.probabilities[1])
        budget.keep()
        budget.learn([4, 5, 6, 1, 2, 3])
    assert chances[1] > 1.2 * chances[0]


def filler(count: int) -> range:
    """Tokens that occur only once."""
    return range(1000, 1000 + count)


def test_a_piece_is_remembered_as_far_as_it_lies_within_so_many_tokens() -> None:
    """A repetition of four tokens counts more than one of three."""
    whole, torn, forgotten = (
        drafted_after([*range(300, 400), 1, 2, 3, 4, *filler(REMEMBERED - 7 + further), 1, 2, 3], (-1, 4))[0]
        for further in (0, 1, 3)
    )
    assert whole > torn > forgotten


# Rounds without a draft


def test_a_draft_that_is_far_behind_must_be_worth_catching_up() -> None:
    budget = controller(credit=0.4)
    assert not budget.drafts(PATIENCE - 1)
    assert budget.drafts(1)


def probed(logprobs: Sequence[float], token: int) -> TreeSizeController:
    """A silent draft without credit, after a probe in which it would have guessed 5, 6 at 40 places of `token`."""
    budget = controller(credit=0.0)
    assert budget.drafts(PATIENCE)
    budget.probe_draft([((5, 6), logprobs)] * 40, [token] * 40)
    return budget


def test_a_silent_draft_whose_guesses_would_have_paid_is_given_credit_again() -> None:
    budget = probed((-0.1, -3.0), 5)
    assert budget.credit.tokens >= CREDIT
    assert budget.drafts(1)


def test_a_silent_draft_whose_guesses_would_have_failed_is_probed_less_often() -> None:
    budget = probed((-0.1, -3.0), 7)
    assert budget.credit.tokens == 0
    assert not budget.drafts(PATIENCE)
    assert budget.drafts(2 * PATIENCE)


def test_what_a_silent_draft_would_have_guessed_teaches_how_far_to_trust_it() -> None:
    trusted, found = (each.acceptance.shares((-0.7, -0.8))[0] for each in (controller(), probed((-0.7, -0.8), 6)))
    assert found < trusted


@pytest.mark.parametrize("machine", MACHINES)
def test_one_round_stakes_only_a_part_of_the_credit(machine: str) -> None:
    """Otherwise a few bad guesses at the start of a text would end all drafting."""
    text = Text(machine, sure, never)
    before = text.budget.credit.tokens
    assert text.decode(1).budget.credit.tokens > 0.35 * before


# Results of other texts


def after_texts(*gained: float) -> TreeSizeController:
    """A text whose draft has gained so many tokens in each of other texts."""
    known = AcceptanceModel()
    for tokens in gained:
        known.earn(tokens)
    return controller(known=known)


def test_a_draft_that_has_paid_in_other_texts_has_more_credit_and_is_probed_sooner() -> None:
    trusted = after_texts(MUCH)
    assert trusted.credit.tokens > CREDIT
    trusted.credit.tokens = 0.0
    assert trusted.drafts(round(PATIENCE * 2 / 3))


def test_a_draft_that_has_cost_other_texts_time_has_less_credit_but_texts_long_past_are_forgotten() -> None:
    assert 0 < after_texts(-MUCH).credit.tokens < CREDIT < after_texts(-1000.0, 2 * MOST_GAINED).credit.tokens


def test_a_draft_whose_guesses_are_hopeless_is_not_even_tried() -> None:
    known = AcceptanceModel()
    for _ in range(200):
        known.see((0.01, 0.0, 0.0), 3)
    budget = controller(known=known)
    assert budget.credit.tokens == CREDIT
    assert not budget.drafts(1)


@pytest.mark.parametrize(("chosen", "gains"), [(always, True), (never, False)])
def test_a_round_s_gain_counts_for_other_texts(
    chosen: Callable[[random.Random, Sequence[float]], int], *, gains: bool
) -> None:
    assert (Text(USUAL, sure, chosen).decode(20).budget.acceptance.gained > 0) == gains


# Price, largest loss of a round, and credit, in units of a plain round


CALL_S, ROW_S, LEAST_S = 0.01, 0.1, 1e-6
"""Time of each draft pass and of the host, and of each row of a verification besides the root."""


def even_costs(host_s: float = CALL_S) -> Costs:
    verify = RowCostCurve({rows: 1 + ROW_S * (rows - 1) for rows in range(1, 17)})
    level = RowCostCurve({1: CALL_S, 16: CALL_S})
    return Costs(
        RowCostCurve({1: 1.0}), level, RowCostCurve({1: CALL_S, 16: CALL_S}), verify, RowCostCurve({1: host_s})
    )


def with_limit(seconds: float, host_s: float = CALL_S) -> TreeSizeController:
    """A controller whose next round may take at most `seconds`."""
    budget = TreeSizeController(even_costs(host_s), AcceptanceModel())
    budget.credit.tokens = seconds - 1
    return budget


def round_s(rows: int, calls: int, host_s: float = CALL_S) -> float:
    """Time of a round with `calls` draft passes and `rows` verified rows."""
    return calls * CALL_S + host_s + 1 + ROW_S * (rows - 1)


def limit() -> LossLimit:
    return LossLimit(even_costs(), AcceptanceModel())


def test_a_text_begins_with_the_price_of_earlier_texts() -> None:
    acceptance = AcceptanceModel()
    earlier = LossLimit(even_costs(), acceptance)
    assert earlier.price == pytest.approx(1.0)
    for _ in range(300):
        earlier.earn(3, 1.5)
    assert LossLimit(even_costs(), acceptance).price == pytest.approx(2.0, rel=0.01)


def test_rounds_earn_together_what_each_earns() -> None:
    one, all_at_once = limit(), limit()
    for _ in range(4):
        one.earn(2, 1.5)
    all_at_once.earn(8, 6.0, rounds=4)
    assert all_at_once.tokens == pytest.approx(one.tokens)
    assert all_at_once.price == pytest.approx(one.price, rel=0.03)
    assert all_at_once.plain_due == one.plain_due


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize(("spare_s", "grows"), [(LEAST_S, True), (-LEAST_S, False)])
def test_a_level_grows_where_a_path_through_it_can_be_staked(level: int, spare_s: float, *, grows: bool) -> None:
    """The path has the root and one node per level; the first level grows where the round drafts."""
    budget = with_limit(round_s(rows=level + 2, calls=level + 1) + spare_s)
    assert budget.drafts(1) == (grows or level > 0)
    for node in range(level):
        assert node == 0 or budget.worth_growing([node]) == [node]
        budget.add_children(node, (1, 2), (-0.05, -4.0), lambda _: 1)
    assert level == 0 or budget.worth_growing([level]) == ([level] if grows else [])


def test_the_host_s_time_is_part_of_what_a_round_may_take() -> None:
    host_s, limit_s = 0.25, 1.6
    budget = with_limit(limit_s, host_s)
    assert budget.drafts(1)
    budget.add_children(0, range(9), [math.log(0.11)] * 9, lambda _: 9)
    kept = len(budget.keep())
    assert round_s(kept, 1, host_s) <= limit_s < round_s(kept + 1, 1, host_s)


def test_credit_grows_token_by_token_while_it_waits_and_has_a_cap() -> None:
    waiting, gaining = limit(), limit()
    before = waiting.tokens
    waiting.wait(10)
    assert waiting.tokens == pytest.approx(before + 10 * CREDIT_A_TOKEN)
    for _ in range(3):
        waiting.wait(round(MOST_CREDIT / CREDIT_A_TOKEN))
    gaining.earn(100, 10.0)
    assert waiting.tokens == gaining.tokens == MOST_CREDIT
