"""Rounds of planned sizes: the chosen size is near the best one, and a failing draft costs almost nothing.

Time is simulated. The result of a round is learnt one round late, as on a device.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts, SizeTimes
from decoder.draft.tree_size.loss_limit import MOST_PATIENCE, PATIENCE
from decoder.draft.tree_size.plan import FIRST_HIT, SIZES, TreePlan
from decoder.draft.tree_size.plan_controller import FADED, PROBE, PROBES, PlanController

DEEPEST = 12
HOPELESS, HALF, GOOD = 0.0, 0.5, 0.85
DEEP = TreePlan(4, SIZES[-1])
Choose = Callable[[int], TreePlan | None]


class Texts:
    """Texts of one pair, which share learnt times and acceptance."""

    def __init__(self) -> None:
        self.costs, self.acceptance = PlanCosts(), AcceptanceModel()

    def begin(self) -> PlanController:
        return PlanController(self.costs, self.acceptance)


@dataclass
class World:
    """Costs in units of a plain round, and the acceptance probability `hit` of each token."""

    hit: float
    level: float = 0.1
    host: float = 0.1
    row: float = 0.0

    def rate(self, sizes: PlanController, count: int, seed: int = 0, choose: Choose | None = None) -> float:
        """Tokens per second, relative to plain rounds; `choose` replaces the controller's choice."""
        luck, spent, made = random.Random(seed), 0.0, 0
        choose = choose or sizes.choose
        told: tuple[TreePlan, list[int]] | None = None
        plan = choose(DEEPEST)
        while made < count:
            if told:
                sizes.learn(*told)
                told = None
            following = choose(DEEPEST)
            if plan is None:
                spent, made = spent + 1, made + 1
                sizes.record_times(None, 0, 1, 1)
            else:
                found = self._accepted(plan, luck)
                draft_s, verify_s = plan.depth * self.level, 1 + plan.nodes * self.row
                sizes.record_times(plan, draft_s, verify_s, draft_s + verify_s + self.host)
                spent, made = spent + draft_s + verify_s + self.host, made + 1 + len(found)
                told = plan, found
            plan = following
        return made / spent

    def _accepted(self, plan: TreePlan, luck: random.Random) -> list[int]:
        found: list[int] = []
        rank = 0
        while len(found) < plan.depth and luck.random() < self.hit:
            rank += luck.choice((1, 1, 1, 2, 4))
            if rank >= plan.nodes:
                break
            found.append(rank)
        return found


@pytest.mark.parametrize("level", [0.02, 0.1, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("hit", [HOPELESS, 0.02])
def test_where_guesses_fail_next_to_nothing_is_lost(hit: float, level: float) -> None:
    texts, world = Texts(), World(hit, level)
    assert world.rate(texts.begin(), 256) > 0.94  # the first text also pays for learning the times
    assert world.rate(texts.begin(), 256) > 0.97
    assert world.rate(texts.begin(), 4096) > 0.98


def test_that_a_choice_which_never_rests_loses_much_would_be_noticed() -> None:
    assert World(HOPELESS).rate(Texts().begin(), 256, choose=lambda deepest: TreePlan(min(4, deepest), 8)) < 0.7


def always(plan: TreePlan) -> Choose:
    return lambda _: plan


@pytest.mark.parametrize(("hit", "seed"), [(HALF, 0), (0.7, 1), (GOOD, 2), (0.95, 0)])
def test_the_choice_comes_near_the_best_size(hit: float, seed: int) -> None:
    world = World(hit)
    plans = [TreePlan(depth, nodes) for depth in (1, 2, 4, 8, 12) for nodes in (4, 16, 64)]
    best = max(world.rate(Texts().begin(), 1000, seed, always(plan)) for plan in plans)
    assert world.rate(Texts().begin(), 1000, seed) > 0.85 * best


FORMER = {
    (0.0, 0.1, 0.0): 0.985,
    (0.0, 0.1, 0.05): 0.961,
    (0.2, 0.02, 0.0): 1.076,
    (0.2, 0.3, 0.0): 0.984,
    (0.5, 0.02, 0.0): 1.629,
    (0.5, 0.1, 0.0): 1.341,
    (0.5, 0.1, 0.05): 0.979,
    (0.5, 0.3, 0.0): 1.044,
    (0.7, 0.02, 0.0): 2.522,
    (0.7, 0.1, 0.05): 1.324,
    (0.7, 0.3, 0.0): 1.281,
    (0.7, 1.0, 0.0): 0.999,
    (0.85, 0.02, 0.0): 4.348,
    (0.85, 0.1, 0.0): 2.646,
    (0.85, 0.1, 0.05): 1.688,
    (0.85, 0.3, 0.0): 1.588,
}
"""(acceptance probability, time of a level, time of a row) -> tokens per second with earlier rules for devices."""


@pytest.mark.parametrize(("hit", "level", "row"), FORMER)
def test_no_text_is_slower_than_it_was_under_rules_for_devices_alone(hit: float, level: float, row: float) -> None:
    world, made, spent = World(hit, level, row=row), 0, 0.0
    for seed in range(4):
        texts = Texts()
        for number, count in enumerate((256, 256, 1024)):
            made += count
            spent += count / world.rate(texts.begin(), count, 4 * number + seed)
    assert made / spent > 0.97 * FORMER[hit, level, row]


def test_after_a_hopeless_text_the_next_one_is_given_a_chance() -> None:
    texts = Texts()
    World(HOPELESS).rate(texts.begin(), 512)
    fresh = World(GOOD).rate(Texts().begin(), 512)
    assert World(GOOD).rate(texts.begin(), 512) > 0.9 * fresh


def test_where_rows_cost_few_are_verified() -> None:
    sizes = Texts().begin()
    World(GOOD, row=0.1).rate(sizes, 1000)
    plans = [plan for plan in (sizes.choose(DEEPEST) for _ in range(20)) if plan]
    assert plans
    assert max(plan.nodes for plan in plans) <= 16


def test_the_first_rounds_are_probes_since_nothing_was_timed() -> None:
    sizes = Texts().begin()
    assert [sizes.choose(DEEPEST), sizes.choose(DEEPEST)] == [PROBE, PROBE]


def probed_after(sizes: PlanController, rounds: int) -> list[int]:
    """Plain rounds before each probe of a draft whose guesses all fail."""
    found, missed = list[int](), 0
    for _ in range(rounds):
        plan = sizes.choose(DEEPEST)
        if plan:
            sizes.record_times(plan, 0.1, 1, 1.2)
            sizes.learn(plan, [])
            found += [missed] * bool(missed)
            missed = 0
        else:
            sizes.record_times(None, 0, 1, 1)
            missed += 1
    return found


def test_the_draft_is_probed_less_often_the_longer_its_guesses_fail() -> None:
    found = probed_after(Texts().begin(), 1500)
    assert found[0] >= PATIENCE - 2
    assert found[0] < found[-1] <= MOST_PATIENCE


def test_another_text_is_probed_as_early_as_the_first() -> None:
    texts = Texts()
    first = probed_after(texts.begin(), 400)
    assert probed_after(texts.begin(), 400)[0] <= first[0] + PROBES


def test_a_probe_whose_guesses_hold_is_followed_by_drafts() -> None:
    texts = after(50, accepted=0)
    sizes = texts.begin()
    while sizes.choose(DEEPEST) is None:
        sizes.record_times(None, 0, 1, 1)
    assert sizes.choose(DEEPEST) == PROBE
    for _ in range(PROBES):
        sizes.learn(PROBE, [1, 2])
    assert all(sizes.choose(DEEPEST) for _ in range(5))


def test_no_choice_is_deeper_than_the_rules_allow() -> None:
    sizes = Texts().begin()
    World(0.95).rate(sizes, 500)
    assert max(plan.depth for plan in (sizes.choose(3) for _ in range(10)) if plan) == 3


# From one text to the next


def after(rounds: int, *, accepted: int) -> Texts:
    """Texts of a pair after `rounds` rounds in each of which the draft's first `accepted` tokens were accepted."""
    texts = Texts()
    texts.costs.learn(None, 0.0, 1.0, 1.0)
    sizes = texts.begin()
    for _ in range(rounds):
        sizes.record_times(DEEP, DEEP.depth * 0.2, 1.0, 1.0 + DEEP.depth * 0.2)
        sizes.learn(DEEP, range(1, accepted + 1))
    return texts


@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_on_another_text_what_was_seen_weighs_less(accepted: int) -> None:
    begun, faded = after(100, accepted=accepted), after(100, accepted=accepted)
    begun.begin()
    faded.acceptance.paths.fade(FADED)
    assert begun.acceptance.paths.expected(8) == faded.acceptance.paths.expected(8)


def test_on_another_text_what_was_seen_is_not_forgotten() -> None:
    texts = after(100, accepted=0)
    bad = texts.acceptance.paths.expected(1)[1][-1]
    texts.begin()
    assert bad < texts.acceptance.paths.expected(1)[1][-1] < FIRST_HIT / 2


def test_sizes_are_known_by_a_text_before() -> None:
    """Otherwise each text would have to learn the draft's acceptance again."""
    plan = after(100, accepted=4).begin().choose(8)
    assert plan is not None
    assert plan.depth >= DEEP.depth
    assert plan.nodes in SIZES


# Times


def test_times_of_sizes_that_were_not_seen_are_guessed() -> None:
    drafts, verifications = SizeTimes(proportional=True), SizeTimes()
    assert drafts.seconds(4) == 0
    drafts.learn(1.0, 4)
    verifications.learn(1.0, 8)
    assert (drafts.seconds(8), verifications.seconds(64)) == (2, 1)


def test_one_slow_round_does_not_upset_a_time() -> None:
    times = SizeTimes()
    for _ in range(20):
        times.learn(1.0, 4)
    times.learn(100.0, 4)
    assert times.seconds(4) < 1.05


def test_a_plain_round_costs_what_the_device_took_though_nobody_waited_for_it() -> None:
    costs = PlanCosts()
    costs.learn(None, 0, 1.0, 0.001)
    assert costs.plain_s() == 1


def test_a_chain_costs_its_levels_and_the_next_size_of_a_verification() -> None:
    costs = PlanCosts()
    costs.learn(TreePlan(2, 8), 0.2, 1.0, 1.3)
    costs.learn(TreePlan(8, 64), 0.8, 1.5, 2.4)
    assert list(itertools.islice(costs.chains_s(), 6, 8)) == pytest.approx([0.7 + 1.0 + 0.1, 0.8 + 1.5 + 0.1])


def test_a_probe_is_no_deeper_than_the_rules_allow() -> None:
    assert Texts().begin().choose(1) == TreePlan(1, PROBE.nodes)
