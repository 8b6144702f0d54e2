"""The bottleneck of a method follows from the method's own figures."""

import pytest
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
from decoder.analysis.metrics import RunFold, Tally
from decoder.append_only import TokenLog
from tests.decoder.analysis.timed_tallies import LIMITED, PLAIN, ROUNDS, raced, tally


def found(of: Tally, plain: Tally | None = PLAIN) -> Bottleneck:
    limits = bottleneck(of, plain)
    assert limits is not None
    return limits


def test_the_speed_up_is_tokens_a_round_over_the_plain_tokens_that_a_round_costs() -> None:
    limits = found(tally(tokens=3, draft_ms=2, verify_ms=5, host_ms=1))
    assert limits.break_even == pytest.approx(2)
    assert limits.speedup == pytest.approx(1.5)


def test_if_every_guess_held_a_round_would_commit_each_level_and_the_bonus_token() -> None:
    bound = found(tally(tokens=2, draft_ms=2, verify_ms=5, host_ms=1, levels=4)).bound("agreement")
    assert bound is not None
    assert bound.gain == pytest.approx(5 / 2)


def test_a_slow_draft_is_named_with_the_speed_without_it() -> None:
    limits = found(tally(tokens=4, draft_ms=15, verify_ms=4, host_ms=1))
    assert limits.bounds[0].limit == "draft"
    assert limits.bounds[0].gain == pytest.approx(20 / 5)


def test_verification_that_grows_with_its_rows_is_named_beside_one_plain_row() -> None:
    limits = found(tally(tokens=4, draft_ms=1, verify_ms=18, host_ms=1))
    assert limits.bounds[0].limit == "verification"
    assert limits.verify_growth == pytest.approx(6)
    assert limits.bounds[0].gain == pytest.approx(20 / 5)


def test_time_that_is_neither_is_named() -> None:
    assert found(tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=15)).bounds[0].limit == "host"


def test_without_plain_decoding_beside_it_there_is_no_speed_up() -> None:
    limits = found(tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=1), plain=None)
    assert limits.speedup is None
    assert limits.bound("verification") is None
    assert "the same run needs at least 5 rounds of ar" in bottleneck_sentences(limits, "linear")[0]


def test_parts_that_are_not_known_bound_nothing() -> None:
    graphs = structs.replace(
        tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=1), draft_s=None, verify_s=None, commit_s=None
    )
    assert [bound.limit for bound in found(graphs).bounds] == ["agreement"]


@pytest.mark.parametrize(
    "change", [{"drafted": 0}, {"rounds": FEWEST_ROUNDS - 1}, {"knows_tree": False}, {"decode_s": 0.0}]
)
def test_nothing_is_said_of_rounds_that_tell_nothing(change: dict[str, float]) -> None:
    assert bottleneck(structs.replace(tally(tokens=2, draft_ms=1, verify_ms=1, host_ms=1), **change), PLAIN) is None


def test_the_verdict_says_how_fast_what_limits_and_what_helps() -> None:
    speed, limit, remedy = bottleneck_sentences(found(tally(tokens=4, draft_ms=15, verify_ms=4, host_ms=1)), "linear")
    assert speed.startswith("linear is slower than plain decoding, at 0.80")
    assert "drafting takes 75%" in limit
    assert "4.00 times" in limit
    assert "shallower trees" in remedy


def test_a_draft_that_never_agrees_is_answered_with_another_or_none() -> None:
    remedy = bottleneck_sentences(found(tally(tokens=1, draft_ms=2, verify_ms=5, host_ms=1)), "linear")[2]
    assert "another draft" in remedy
    assert "--methods ar" in remedy


def test_a_text_that_repeats_itself_is_said_to_mislead() -> None:
    looping = structs.replace(
        tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=1), log=TokenLog().plus([1, 2] * (2 * ROUNDS))
    )
    assert found(looping).repeats
    assert "repeats itself" in bottleneck_sentences(found(looping), "linear")[-1]


def test_nothing_is_said_of_rounds_that_wrote_nothing() -> None:
    of = tally(tokens=2, draft_ms=1, verify_ms=1, host_ms=1)
    assert bottleneck(structs.replace(of, log=TokenLog(), timed_tokens=0), PLAIN) is None
    assert found(of, structs.replace(PLAIN, timed_tokens=0)).speedup is None


def test_a_draft_whose_guesses_all_hold_is_not_said_to_disagree() -> None:
    graphs = structs.replace(
        tally(tokens=5, draft_ms=1, verify_ms=4, host_ms=1, levels=4), draft_s=None, verify_s=None, commit_s=None
    )
    assert bottleneck_sentences(found(graphs), "linear")[1] == "None of the known limits applies."


def test_plain_decoding_that_has_just_begun_is_not_asked_for_again() -> None:
    few = structs.replace(PLAIN, rounds=FEWEST_ROUNDS - 1)
    told = bottleneck_sentences(found(tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=1), few), "linear")[0]
    assert "add ar" not in told
    assert "at least 5 rounds of ar" in told


@pytest.mark.parametrize("part", ["draft", "host"])
def test_no_remedy_names_what_a_run_may_have_already(part: str) -> None:
    times = {"draft_ms": 1, "host_ms": 1} | {f"{part}_ms": 15}
    remedy = bottleneck_sentences(found(tally(tokens=4, verify_ms=4, **times)), "linear")[2]
    assert "half precision" not in remedy
    assert "a GPU with graphs" not in remedy


def test_a_method_is_explained_with_where_its_text_parts_from_that_of_plain_decoding() -> None:
    linear = tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=1)
    same = raced({"linear": linear, "ar": PLAIN})
    assert explained(same, "linear", "L") == bottleneck_sentences(found(linear), "L")
    other = raced({"linear": linear, "ar": structs.replace(PLAIN, log=TokenLog().plus([0, 1, 99]))})
    difference = "Its text differs from the text of ar; the first difference is at token 2."
    assert explained(other, "linear", "L")[1] == difference
    assert explained(same, "ar", "ar") == ()


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("agreement", "25% of 4 drafted levels accepted; a better draft or smaller trees would help"),
        ("draft", "drafting takes 75% of a round; a smaller draft or shallower trees would help"),
        ("verification", "verification grows with rows: 17 rows take 6x as long as one; smaller trees would help"),
        (
            "host",
            "75% of a round is neither drafting nor verification; a faster decoding path or larger models would help",
        ),
    ],
)
def test_a_line_for_a_live_screen_names_the_limit_and_the_remedy_that_the_verdict_has(limit: str, told: str) -> None:
    limits = found(LIMITED[limit])
    assert limits.bounds[0].limit == limit
    wordings = headline(limits, "linear")
    assert wordings[2] == told
    assert wordings[0].startswith("linear: ")
    assert f"{limits.bounds[0].gain:.2f}x as fast" in wordings[0]
    assert WORDS[limits.bounds[0].limit].remedy.whole in bottleneck_sentences(limits, "linear")[2]


@pytest.mark.parametrize("limit", LIMITED)
def test_wordings_get_shorter_down_to_forty_cells_and_less(limit: str) -> None:
    lengths = [len(told) for told in headline(found(LIMITED[limit]), "linear")]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] <= 150
    assert any(30 <= length <= 46 for length in lengths)
    assert lengths[-1] <= 40


def test_a_line_on_a_draft_that_never_agrees_names_another_or_none() -> None:
    told = headline(found(tally(tokens=1, draft_ms=2, verify_ms=5, host_ms=1)), "linear")
    assert "another draft, or --methods ar, would help" in told[0]
    assert told[-2].endswith("another draft")


def test_a_line_says_nothing_where_too_little_is_known_or_nothing_limits() -> None:
    assert headline(of_method(RunFold(tallies={"linear": LIMITED["draft"]}), "ar"), "ar") == ()
    perfect = structs.replace(
        tally(tokens=5, draft_ms=1, verify_ms=4, host_ms=1, levels=4), draft_s=None, verify_s=None, commit_s=None
    )
    assert headline(found(perfect), "linear") == ()
