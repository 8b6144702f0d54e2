"""Expected times on the screen: before the first round in the header, then beside the measured ones in the race."""

from dataclasses import replace

import pytest
from msgspec import UNSET, structs

from decoder.analysis.roofline import round_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Event, Expected, Run, decode_line, encode
from dynatui.number_format import short
from dynatui.render.expected import expected_words, measured_words
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import lines, plain_round, run, state_of, tree_round

EXPECTED = Expected(target_read_s=0.002, target_row_s=0.0004, draft_pass_s=0.0001)
LONG = "at most 500 tokens/s plain, a round of 64 rows at least 26.40 ms"
SHORT = "at most 500 tokens/s plain"


def estimated(*events: Event, expected: Expected = EXPECTED) -> RunState:
    """State after these events of a run that tells these expected times."""
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
    told, silent = (state_of([event, tree_round(0), plain_round("ar", 0)]) for event in (told_run(), run()))
    assert measured_words(told) != ()
    assert measured_words(silent) == expected_words(state_of([run()])) == ()
    assert not any("at least" in line for line in lines(race(Scene(silent), 100, 20)))


def told_run() -> Run:
    return structs.replace(run(), expected=EXPECTED)


def test_measured_rounds_stand_beside_the_least_time_of_their_own_size() -> None:
    state = estimated(*(tree_round(number) for number in range(3)))
    # Each round takes 20 ms, makes 2 draft passes and verifies 6 rows.
    least = 1000 * round_s(EXPECTED, 2, 6)
    assert measured_words(state)[0] == f"a round of dynatree takes 20.00 ms, expected at least {least:.2f}"
    shown = [line for line in lines(race(Scene(state), 100, 20)) if "at least" in line]
    assert len(shown) == 1


def test_the_speed_of_ar_stands_beside_its_limit_once_it_is_warm() -> None:
    cold = [plain_round("ar", number) for number in range(WARM_UP_TOKENS - 1)]
    warm = [*cold, plain_round("ar", len(cold))]
    assert measured_words(structs.replace(estimated(*cold), chosen="ar")) == ()
    state = structs.replace(estimated(*warm), chosen="ar")
    rate = state.figures()["ar"].tokens_per_second
    assert measured_words(state)[0] == f"ar decodes {short(rate, 1)} tokens/s, expected at most 500"
    both = measured_words(estimated(tree_round(0), *warm))
    assert both[0].endswith(f"; {measured_words(state)[0]}")
    assert both[-1] == f"round 20.00 ms, at least {1000 * round_s(EXPECTED, 2, 6):.2f}"


def test_a_method_that_does_not_report_its_passes_has_no_least_time() -> None:
    silent = structs.replace(tree_round(0), draft_forwards=None)
    assert measured_words(estimated(silent)) == ()


def test_the_race_drops_the_line_where_there_is_no_row_for_it() -> None:
    scene = Scene(estimated(*(tree_round(number) for number in range(3))))
    for height in range(1, 30):
        rows = lines(race(replace(scene, panel="race"), 60, height))
        assert len(rows) == height


def test_a_recording_keeps_the_expected_times_and_older_ones_have_none() -> None:
    assert decode_line(encode(told_run()), 1) == told_run()
    bare = encode(run())
    assert b"expected" not in bare
    old = decode_line(bare, 1)
    assert isinstance(old, Run)
    assert old.expected is UNSET
