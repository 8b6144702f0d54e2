"""Drafts count as wasted when many rounds gain almost no tokens from them, and until they clearly gain some."""

import pytest

from dynatui.attach.figures import PAYING_FROM, ROUNDS, SECONDS, WASTED_BELOW, Counts, Judgement, as_event, judged
from dynatui.attach.servers import KINDS
from tests.dynatui.attach.page_server import page
from tests.dynatui.attach.scripted_session import readings

VLLM = KINDS["vllm"]
DEAD, NEAR, ALIVE = 0.03, 0.15, 0.5
"""Accepted tokens per round: below both limits, between them, and above both."""


def lot(accepted_a_round: float, rounds: int = ROUNDS) -> Counts:
    return Counts(drafts=rounds, drafted=2 * rounds, accepted=round(accepted_a_round * rounds))


def after(*lots: Counts, seconds: float = SECONDS, before: Judgement | None = None) -> Judgement:
    """The judgement after successive counts, each over `seconds`."""
    found = before or Judgement()
    for number, counts in enumerate(lots):
        found = judged(VLLM, found, counts, number * seconds, (number + 1) * seconds)
    return found


def test_many_rounds_of_which_next_to_nothing_was_accepted_are_told_since_they_began() -> None:
    found = as_event(VLLM, after(lot(ALIVE), lot(DEAD), lot(DEAD)))
    assert found is not None
    assert (found.since, found.drafts, found.drafted, found.accepted) == (SECONDS, 2 * ROUNDS, 4 * ROUNDS, 6)
    assert (found.tokens_per_round, found.acceptance_rate) == pytest.approx((1.03, 0.015))


@pytest.mark.parametrize(
    ("accepted", "wasted"),
    [
        ((WASTED_BELOW - 1,), False),
        ((WASTED_BELOW - 1.01,), True),
        ((DEAD, PAYING_FROM - 1), False),
        ((DEAD, PAYING_FROM - 1.01), True),
        ((NEAR, NEAR, NEAR), False),
        ((DEAD, NEAR, NEAR), True),
        ((DEAD, ALIVE, NEAR), False),
        ((DEAD, ALIVE), False),
    ],
)
def test_between_the_sharp_limits_all_stays_as_it_was(accepted: tuple[float, ...], *, wasted: bool) -> None:
    assert (after(*map(lot, accepted)).wasted is not None) is wasted


def test_it_begins_anew_after_drafts_were_accepted_again() -> None:
    assert after(lot(DEAD), lot(ALIVE), lot(DEAD)).since == 2 * SECONDS


@pytest.mark.parametrize(
    ("rounds", "accepted", "seconds", "wasted"),
    [(100, 9, 10.0, True), (100, 10, 10.0, False), (99, 0, 10.0, False), (100, 9, 9.9, False)],
)
def test_a_hundred_rounds_in_ten_seconds_must_bring_ten_drafted_tokens(
    rounds: int, accepted: int, seconds: float, *, wasted: bool
) -> None:
    found = after(Counts(drafts=rounds, drafted=2 * rounds, accepted=accepted), seconds=seconds)
    assert (found.wasted is not None) is wasted
    if wasted:
        still, again = (lot(more / 100, 100) for more in (19, 20))
        assert after(still, before=found).wasted is not None
        assert after(again, before=found).wasted is None


@pytest.mark.parametrize(
    ("drafted", "accepted", "wasted"),
    [
        (64, (3.0,), False),
        (8, (0.34,), True),
        (8, (0.36,), False),
        (8, (0.41,), False),
        (8, (0.3, 0.45), True),
        (8, (0.3, 0.45, 0.5), False),
    ],
)
def test_a_low_share_of_some_tokens_a_round_but_not_of_large_trees_is_waste_until_it_is_clearly_higher(
    drafted: int, accepted: tuple[float, ...], *, wasted: bool
) -> None:
    lots = (Counts(drafts=ROUNDS, drafted=drafted * ROUNDS, accepted=round(each * ROUNDS)) for each in accepted)
    assert (after(*lots).wasted is not None) is wasted


def test_few_rounds_a_short_time_and_an_idle_server_say_nothing() -> None:
    assert after(lot(DEAD, ROUNDS - 1)).wasted is None
    assert after(lot(DEAD, 100 * ROUNDS), seconds=SECONDS - 0.1).wasted is None
    parts = [lot(DEAD, ROUNDS // 4)] * 4
    assert after(*parts[:3]).wasted is None
    assert after(*parts).wasted is not None
    assert after(*parts[:3], lot(DEAD), seconds=SECONDS / 3).wasted is not None
    idle = Counts(drafts=0, drafted=0, accepted=0)
    found = after(lot(DEAD))
    assert after(*[idle] * 9, before=found) == found
    assert after(idle, lot(DEAD)).since == SECONDS


@pytest.mark.parametrize("field", ["drafts", "drafted", "accepted"])
def test_what_a_server_does_not_tell_says_nothing(field: str) -> None:
    known = {"drafts": 9 * ROUNDS, "drafted": 27 * ROUNDS, "accepted": 0}
    assert after(Counts(**{**known, field: None})) == Judgement()  # type: ignore[arg-type]


def vllm(rounds: int, accepted: int) -> str:
    text = (
        page("vllm-1").replace("} 4800.0", f"}} {4800 + rounds}.0").replace("} 14400.0", f"}} {14400 + 3 * rounds}.0")
    )
    return text.replace("} 8100.0", f"}} {8100 + accepted}.0")


def test_readings_of_a_server_say_so_and_a_restart_begins_anew() -> None:
    first, dead, more, restarted = readings(
        vllm(0, 0), vllm(200, 6), vllm(400, 12), vllm(-4790, -8090), apart_s=SECONDS
    )
    assert (first.wasted, restarted.wasted) == (None, None)
    assert dead.wasted is not None
    assert dead.wasted.acceptance_rate == pytest.approx(0.01)
    assert more.wasted is not None
    assert (more.wasted.since, more.wasted.drafts) == (0.0, 400)
    *_, recovered = readings(vllm(0, 0), vllm(200, 6), vllm(400, 300), apart_s=SECONDS)
    assert recovered.wasted is None


@pytest.mark.parametrize("name", ["vllm", "sglang", "sglang-dspark", "llamacpp", "tensorrt_llm", "tgi"])
def test_no_server_that_accepts_drafts_is_said_to_waste_them(name: str) -> None:
    pages = (page(f"{name}-{number % 2 + 1}") for number in range(5))
    told = readings(*pages, kind=name.partition("-")[0], apart_s=SECONDS)
    assert [reading.wasted for reading in told] == [None] * 5
