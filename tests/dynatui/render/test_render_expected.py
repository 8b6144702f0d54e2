"""Expected times on the screen: before the first round in the header, then in a sentence of the panel Work."""

import pytest
from msgspec import UNSET, structs

from decoder.analysis.roofline import round_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Event, Expected, Run, decode_line, encode
from dynatui.render.headline import expected_words, overhead_words
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.render.work import work
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import lines, plain_round, run, state_of, tree_round

EXPECTED = Expected(target_read_s=0.002, target_row_s=0.0004, draft_pass_s=0.0001)
LONG = "at most 500 tokens/s plain, a round of 64 rows at least 26.40 ms"
SHORT = "at most 500 tokens/s plain"


def estimated(*events: Event, expected: Expected = EXPECTED) -> RunState:
    return state_of([structs.replace(run(), expected=expected), *events])


@pytest.mark.parametrize(("width", "shown"), [(60, ""), (80, SHORT), (120, SHORT), (200, LONG)])
def test_the_header_tells_what_fits_of_the_expected_times(width: int, shown: str) -> None:
    (line,) = lines(status(Scene(estimated()), width, 1))
    assert len(line) == width
    assert shown in line
    assert ("at most" in line) == bool(shown)
    assert (LONG in line) == (shown == LONG)


def test_they_are_told_before_the_first_round_only() -> None:
    assert expected_words(estimated()) == (LONG, SHORT)
    assert expected_words(estimated(tree_round(0))) == ()
    assert expected_words(RunState()) == ()


def test_a_slow_pair_has_decimals() -> None:
    assert expected_words(estimated(expected=Expected(target_read_s=4.0)))[1] == "at most 0.25 tokens/s plain"


def test_a_run_that_tells_no_times_shows_none() -> None:
    rounds = [tree_round(number) for number in range(WARM_UP_TOKENS)]
    told, silent = (state_of([event, *rounds]) for event in (told_run(), run()))
    assert overhead_words(told) != ()
    assert overhead_words(silent) == expected_words(state_of([run()])) == ()


def told_run() -> Run:
    return structs.replace(run(), expected=EXPECTED)


def test_the_overhead_of_a_round_is_its_time_beyond_the_least_time_of_its_own_size() -> None:
    state = estimated(*(tree_round(number) for number in range(WARM_UP_TOKENS)))
    # Each round takes 20 ms, makes 2 draft passes and verifies 6 rows.
    least = round_s(EXPECTED, 2, 6)
    (slow,) = overhead_words(state)
    assert slow.startswith(
        f"A round takes 20.00 ms, of which memory and arithmetic of this machine need {1000 * least:.2f};"
    )
    assert slow in " ".join(" ".join(line.strip("│ ") for line in lines(work(Scene(state), 150, 40))).split())
    near = Expected(target_read_s=0.019)
    (fast,) = overhead_words(estimated(*(tree_round(number) for number in range(WARM_UP_TOKENS)), expected=near))
    assert "near the least time on this machine, 19.00 ms: only smaller trees" in fast


def test_the_overhead_is_told_once_the_watched_method_is_warm() -> None:
    cold = [plain_round("ar", number) for number in range(WARM_UP_TOKENS - 1)]
    assert overhead_words(structs.replace(estimated(*cold), chosen="ar")) == ()
    warm = structs.replace(estimated(*cold, plain_round("ar", len(cold))), chosen="ar")
    assert overhead_words(warm) != ()


def test_a_method_that_does_not_report_its_passes_has_no_least_time() -> None:
    silent = [structs.replace(tree_round(number), draft_forwards=None) for number in range(WARM_UP_TOKENS)]
    assert overhead_words(estimated(*silent)) == ()


def test_a_recording_keeps_the_expected_times_and_older_ones_have_none() -> None:
    assert decode_line(encode(told_run()), 1) == told_run()
    bare = encode(run())
    assert b"expected" not in bare
    old = decode_line(bare, 1)
    assert isinstance(old, Run)
    assert old.expected is UNSET
