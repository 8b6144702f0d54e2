"""The losslessness check: sums over sampled tokens, their z-score, and the result."""

import math
import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from decoder.analysis.losslessness import (
    LEAST_TOKENS,
    AtDepth,
    Deviation,
    Evidence,
    Light,
    by_draft_depth,
    colour,
    weighed,
)
from decoder.events import Draws, Round, Verification
from tests.dynatui.scripted_runs import drawn_round, tree_round

TARGET = ([0.6, 0.3, 0.1], [0.4, 0.35, 0.25], [0.85, 0.1, 0.05])
"""The target's distributions at successive positions of a text."""


def told(law: Sequence[float], token: int) -> Verification:
    """Verification statistics of a round of one token, computed from the definitions of the fields."""
    entropy = -math.fsum(p * math.log(p) for p in law)
    most = max(law)
    return Verification(
        surprise=-math.log(law[token]) - entropy,
        surprise_variance=math.fsum(p * (-math.log(p) - entropy) ** 2 for p in law),
        top1=(law[token] == most) - most,
        top1_variance=most * (1 - most),
    )


def evidence_of(sampled: Sequence[Sequence[float]], seed: int, tokens: int = 900) -> Evidence:
    """Evidence of a text with tokens drawn from `sampled`, while the target's distributions are `TARGET`."""
    generator, found = random.Random(seed), Evidence()
    for number in range(tokens):
        token = generator.choices(range(3), sampled[number % 3])[0]
        event = structs.replace(tree_round(number), committed=[token], verification=told(TARGET[number % 3], token))
        found = weighed(found, event)
    return found


def test_text_of_the_targets_distribution_stays_within_chance() -> None:
    lights = [evidence_of(TARGET, seed).light for seed in range(40)]
    assert "red" not in lights
    assert lights.count("green") >= 36


def test_the_light_is_grey_before_there_is_enough() -> None:
    assert evidence_of(TARGET, 0, LEAST_TOKENS - 1).light == "grey"
    assert evidence_of(TARGET, 0, LEAST_TOKENS).light != "grey"
    sure = structs.replace(evidence_of(TARGET, 0), surprise=Deviation(9.0, 0.1, 900), top1=Deviation(0.9, 0.01, 900))
    assert sure.light == "grey", "nearly certain tokens tell nothing"


@pytest.mark.parametrize(
    ("z", "light"), [(0, "green"), (-2.4, "green"), (2.5, "yellow"), (-3.9, "yellow"), (4, "red"), (-9, "red")]
)
def test_the_colours_begin_where_they_say(z: float, light: Light) -> None:
    assert colour(z) == light


def test_a_sum_that_is_no_number_has_no_z() -> None:
    assert Deviation().z is None
    assert Deviation(1.0, -1.0, 3).z is None
    assert Deviation(math.nan, 1.0, 3).z is None
    assert Deviation(1e308, 1e-308, 3).plus(1e308, 0.0, 1).z is None


def test_the_prediction_compares_tokens_before_any_cut() -> None:
    cut = structs.replace(drawn_round(0), committed=[11])
    found = weighed(weighed(Evidence(), cut), drawn_round(1))
    assert found.came_tokens == 6
    assert found.predicted_tokens == pytest.approx(5.2)
    assert found.prediction.z == pytest.approx((0.5 + 0.3) / math.hypot(0.5, 0.3))
    assert found.surprise.count == 4, "of the text, only what was committed"


def drawing(*path: Draws) -> Round:
    event = drawn_round(0)
    assert event.verification is not None
    return structs.replace(event, verification=structs.replace(event.verification, path=list(path)))


def test_the_figures_of_a_depth_are_means_over_the_nodes_that_were_visited() -> None:
    first = Draws(count=2, accepted=True, l1=0.4, acceptance=0.8, bound=0.9)
    second = Draws(count=2, accepted=False, l1=1.0, acceptance=0.4, bound=0.5)
    levels = by_draft_depth(by_draft_depth((), drawing(first, second)), drawing(second))
    assert [level.visits for level in levels] == [2, 1]
    assert levels[0].share == 0.5
    assert levels[0].mean_l1 == pytest.approx(0.7)
    assert levels[0].mean_acceptance == pytest.approx(0.6)
    assert levels[0].mean_bound == pytest.approx(0.7)
    assert levels[1].share == 0


def test_a_verifier_without_acceptance_of_single_nodes_has_no_mean_of_it() -> None:
    none = Draws(count=2, accepted=True, l1=0.4, acceptance=None, bound=0.9)
    levels = by_draft_depth((), drawing(none))
    assert levels[0].mean_acceptance is None
    assert by_draft_depth(levels, tree_round(0)) == levels
    assert AtDepth().mean_bound == 0


@pytest.mark.parametrize("power", [0.7, 1.4], ids=["too even", "too sharp"])
def test_text_of_another_temperature_is_red_and_the_sign_says_in_which_way_it_strays(power: float) -> None:
    warped = [[p**power for p in law] for law in TARGET]
    for found in (evidence_of(warped, seed) for seed in range(5)):
        assert found.light == "red"
        signs = [(each.z or 0.0) > 0 for each in (found.surprise, found.top1)]
        assert signs == [power < 1, power > 1]


def test_rounds_without_probabilities_tell_nothing_and_coupled_ones_predict_nothing() -> None:
    assert weighed(Evidence(), tree_round(0)) == Evidence()
    assert Evidence().light == "grey"
    event = structs.replace(tree_round(0), verification=told(TARGET[0], 0))
    assert weighed(Evidence(), event).prediction == Deviation()


def test_the_worse_of_both_sums_decides() -> None:
    good, bad = Deviation(1.0, 100.0, 200), Deviation(-50.0, 100.0, 200)
    lights = [Evidence(surprise=one, top1=other).light for one, other in ((good, bad), (bad, good), (good, good))]
    assert lights == ["red", "red", "green"]
