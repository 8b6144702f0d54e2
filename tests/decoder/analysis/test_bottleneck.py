"""The bottleneck of a method follows from the method's own figures."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.bottleneck import (
    FEWEST_ROUNDS,
    WORDS,
    Bottleneck,
    bottleneck,
    bottleneck_sentences,
    explained,
    headline,
    of_method,
)
from decoder.analysis.metrics import RunFold, Tally, tally_round
from decoder.append_only import TokenLog
from decoder.events import Round
from dynatui.record.reader import read_events
from tests.decoder.analysis.tallies import LIMITED, PLAIN, ROUNDS, raced, tally

USUAL, NEVER_AGREES = (tally(tokens=tokens, draft_ms=2, verify_ms=5, host_ms=1) for tokens in (3, 1))
UNKNOWN_PARTS = {"draft_s": None, "verify_s": None, "commit_s": None}
ALL_HOLD = structs.replace(tally(tokens=5, draft_ms=1, verify_ms=4, host_ms=1, levels=4), **UNKNOWN_PARTS)
"""A draft whose guesses all hold, in graphs, whose parts are unknown."""
OTHER_TEXT = structs.replace(PLAIN, log=TokenLog().plus([0, 1, 99]))


def looping(of: Tally) -> Tally:
    """The same totals of a text that repeats itself."""
    return structs.replace(of, log=TokenLog().plus([1, 2] * (2 * ROUNDS)))


def found(of: Tally, plain: Tally | None = PLAIN) -> Bottleneck:
    limits = bottleneck(of, plain)
    assert limits is not None
    return limits


def gains(limits: Bottleneck) -> dict[str, float]:
    return {bound.limit: bound.gain for bound in limits.bounds}


def test_the_speed_up_is_tokens_a_round_over_the_plain_tokens_that_a_round_costs() -> None:
    assert (found(USUAL).break_even, found(USUAL).speedup) == pytest.approx((2, 1.5))


def test_if_every_guess_held_a_round_would_commit_each_level_and_the_bonus_token() -> None:
    assert gains(found(USUAL))["agreement"] == pytest.approx(5 / 3)


@pytest.mark.parametrize(("limit", "gain"), [("agreement", 5 / 2), ("draft", 4), ("verification", 4), ("host", 4)])
def test_the_largest_limit_is_named_with_the_speed_without_it(limit: str, gain: float) -> None:
    limits = found(LIMITED[limit])
    assert limits.bounds[0].limit == limit
    assert limits.bounds[0].gain == pytest.approx(gain, rel=0.05)
    if limit == "verification":
        assert limits.verify_growth == pytest.approx(6), "verification of rows beside one plain row"


def test_without_plain_decoding_beside_it_there_is_no_speed_up() -> None:
    few = structs.replace(PLAIN, rounds=FEWEST_ROUNDS - 1)
    limits = found(USUAL, plain=None)
    assert limits.speedup is None
    assert "verification" not in gains(limits)
    assert found(USUAL, structs.replace(PLAIN, timed_tokens=0)).speedup is None
    told = [bottleneck_sentences(each, "linear")[0] for each in (limits, found(USUAL, few))]
    assert all("at least 5 rounds of ar" in each for each in told)
    assert "add ar" not in told[1], "plain decoding that has just begun is not asked for again"


def test_parts_that_are_not_known_bound_nothing() -> None:
    assert list(gains(found(structs.replace(USUAL, **UNKNOWN_PARTS)))) == ["agreement"]


@pytest.mark.parametrize(
    "change",
    [
        *({"drafted": 0}, {"rounds": FEWEST_ROUNDS - 1}, {"knows_tree": False}, {"decode_s": 0.0}),
        {"log": TokenLog(), "timed_tokens": 0},
    ],
)
def test_nothing_is_said_of_rounds_that_tell_nothing(change: dict[str, object]) -> None:
    assert bottleneck(structs.replace(USUAL, **change), PLAIN) is None


# Words


def test_the_verdict_says_how_fast_what_limits_and_what_helps() -> None:
    speed, limit, remedy = bottleneck_sentences(found(LIMITED["draft"]), "linear")
    assert speed.startswith("linear is slower than plain decoding, at 0.80")
    assert "drafting takes 75%" in limit
    assert "4.00 times" in limit
    assert "shallower trees" in remedy


def test_a_draft_that_never_agrees_is_answered_with_another_or_none() -> None:
    remedy = bottleneck_sentences(found(NEVER_AGREES), "linear")[2]
    assert "another draft" in remedy
    assert "--methods ar" in remedy
    assert all(told.endswith("another draft") for told in headline(found(NEVER_AGREES))[:2])


def test_a_text_that_repeats_itself_is_said_to_mislead() -> None:
    limits = found(looping(LIMITED["draft"]))
    assert limits.repeats
    assert "repeats itself" in bottleneck_sentences(limits, "linear")[-1]


def test_a_draft_whose_guesses_all_hold_is_not_said_to_disagree() -> None:
    assert bottleneck_sentences(found(ALL_HOLD), "linear")[1] == "None of the known limits applies."
    assert headline(found(ALL_HOLD)) == ()
    assert headline(of_method(RunFold(tallies={"linear": LIMITED["draft"]}), "ar")) == ()


@pytest.mark.parametrize("part", ["draft", "host"])
def test_no_remedy_names_what_a_run_may_have_already(part: str) -> None:
    remedy = bottleneck_sentences(found(LIMITED[part]), "linear")[2]
    assert "half precision" not in remedy
    assert "a GPU with graphs" not in remedy


def test_a_method_is_explained_with_where_its_text_parts_from_that_of_plain_decoding() -> None:
    same = raced({"linear": USUAL, "ar": PLAIN})
    assert explained(same, "linear", "L") == bottleneck_sentences(found(USUAL), "L")
    difference = "Its text differs from the text of ar; the first difference is at token 2."
    assert explained(raced({"linear": USUAL, "ar": OTHER_TEXT}), "linear", "L")[1] == difference
    assert explained(same, "ar", "ar") == ()


HEADLINES = {
    "agreement": "25% of 4 drafted levels accepted; try a better draft",
    "draft": "drafting takes 75%; try shallower trees",
    "verification": "17 rows cost 6x one row; try smaller trees",
    "host": "75% neither draft nor target; try a faster path",
}


@pytest.mark.parametrize("limit", LIMITED)
def test_a_line_for_a_live_screen_names_limit_and_remedy_in_three_wordings(limit: str) -> None:
    limits = found(LIMITED[limit])
    long, short, brief = headline(limits)
    assert short == HEADLINES[limit]
    assert brief == short.partition(";")[0]
    assert long.startswith(brief)
    assert f"{limits.bounds[0].gain:.2f}x as fast" in long
    assert WORDS[limits.bounds[0].limit].remedy.whole in bottleneck_sentences(limits, "linear")[2]
    assert len(brief) <= 36 < len(short) <= 56 < len(long) <= 104


# Recorded rounds with any times: no bound is exceeded by the same rounds without the cost

RECORDED = [
    event
    for event in read_events(Path("tests/traces/demo.jsonl"))
    if isinstance(event, Round) and event.method == "dynatree"
][:12]
MILLISECONDS = st.floats(0.01, 50.0)
TIMES = st.lists(st.tuples(MILLISECONDS, MILLISECONDS, MILLISECONDS), min_size=FEWEST_ROUNDS, max_size=len(RECORDED))


def timed(times: Iterable[tuple[float, float, float]]) -> Tally:
    """The recorded rounds, with their times for drafting, verification and the rest in milliseconds."""
    told = Tally()
    for event, stages in zip(RECORDED, times, strict=False):
        draft_s, verify_s, rest_s = (1e-3 * stage for stage in stages)
        spent_s = draft_s + verify_s + rest_s
        told = tally_round(
            told,
            structs.replace(
                event,
                t=told.decode_s + spent_s,
                draft_s=draft_s,
                verify_s=verify_s,
                commit_s=rest_s / 2,
                stalled_s=None,
            ),
        )
    return told


@given(TIMES, MILLISECONDS)
def test_no_bound_is_exceeded_by_the_same_rounds_without_the_cost(
    times: list[tuple[float, float, float]], pass_ms: float
) -> None:
    own, plain = timed(times), timed([(0.0, pass_ms, 0.0)] * FEWEST_ROUNDS)
    rate, limits = own.rated.tokens_per_second, found(own, plain)
    grows = sum(verify for _, verify, _ in times) > len(times) * pass_ms
    without = {
        "draft": timed((0.0, verify, rest) for _, verify, rest in times),
        "verification": timed((draft, pass_ms if grows else verify, rest) for draft, verify, rest in times),
        "host": timed((draft, verify, 0.0) for draft, verify, _ in times),
    }
    assert rate is not None
    for bound in limits.bounds:
        assert bound.gain >= 1
        if bound.limit == "agreement":
            assert own.levels + own.rounds <= bound.gain * len(own.tokens) * (1 + 1e-9)
        else:
            faster = without[bound.limit].rated.tokens_per_second
            assert faster == pytest.approx(rate * bound.gain)
