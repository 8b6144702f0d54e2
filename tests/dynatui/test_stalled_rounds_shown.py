"""A stalled round is marked wherever rounds are shown, and wherever rates are shown they say that they exclude it."""

import itertools
from collections.abc import Iterable, Iterator
from io import StringIO

import pytest
from msgspec import structs

from decoder.analysis.bottleneck import bottleneck, explained
from decoder.errors import RecordingError
from decoder.events import Event, Round, Start, Summary, encode
from decoder.run.config import RunConfig
from dynatui.record.checks import Checker
from dynatui.record.export import rounds_csv
from dynatui.record.transcript import Transcript
from dynatui.render.cards import cards
from dynatui.render.inspect import inspect
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.tree import tree
from dynatui.render.versus import table
from dynatui.render.work import times_table
from dynatui.report.replay import replay_page
from dynatui.screen.run import lines as summary_lines
from dynatui.session import Session
from dynatui.sources.engine import EngineSource, Loaded
from dynatui.sources.source import readable_speed
from dynatui.state.ab_comparison import compared, samples_of
from dynatui.state.run_state import Prompt, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.render.extreme_scenes import is_drawn
from tests.dynatui.scripted_runs import lines, plain_round, raced, run, state_of, tree_round

STALLED = 10
STALL_S = 1.06
ROUNDS = 40


def of_dynatree(lost: dict[int, float], rounds: int = ROUNDS) -> list[Round]:
    found, late_s = [], 0.0
    for number in range(rounds):
        event, stalled_s = tree_round(number), lost.get(number)
        late_s += stalled_s or 0.0
        verify_s = (event.verify_s or 0.0) + (stalled_s or 0.0)
        found.append(structs.replace(event, t=event.t + late_s, verify_s=verify_s, stalled_s=stalled_s))
    return found


def told(lost: dict[int, float]) -> list[Event]:
    started = [Start(method=name, prefill_s=0.01) for name in ("dynatree", "ar")]
    return [run(), *started, *raced(of_dynatree(lost), (plain_round("ar", number) for number in range(ROUNDS)))]


USUAL = told({})
ONE = told({STALLED: STALL_S})
MANY = told(dict.fromkeys(range(0, ROUNDS, 2), 0.03))


def scene(events: Iterable[Event]) -> Scene:
    return Scene(state_of([Prompt(1, 1), *events]))


def page(rows: Iterable[str]) -> str:
    return " ".join(" ".join(rows).split())


def test_the_race_shows_the_speed_without_the_stalled_round_and_says_so() -> None:
    usual, one = (lines(race(scene(events), 78, 6)) for events in (USUAL, ONE))
    assert usual[1] == one[1]
    assert "150/s" in one[1]
    assert "3.00x" in one[1]
    assert "left out" not in usual[0]
    assert "rates leave out 1 stalled round (1.08 s)" in one[0]
    assert "1 stalled round left out" in lines(race(scene(ONE), 40, 6))[0]


def test_on_a_busy_machine_rates_count_every_round_and_say_so() -> None:
    found = lines(race(scene(MANY), 100, 6))
    assert "86/s" in found[1]
    assert "the machine is busy: 20 rounds waited long for a processor; rates count them" in found[0]


@pytest.mark.parametrize("events", [ONE, MANY])
def test_what_is_said_of_stalls_fits_any_panel(events: list[Event]) -> None:
    looked = scene(events)
    cursor = Scene(looked.state, cursor=3 * STALLED, symbols="ascii")
    for size in itertools.product((1, 2, 5, 11, 24, 40, 62, 120), (1, 2, 6, 20)):
        for shown, draw in itertools.product((looked, cursor), (race, tree, inspect, cards)):
            assert is_drawn(draw(shown, *size), shown, size) or (draw is cards and size[1] != 3)


def test_the_first_card_names_it_where_there_is_room() -> None:
    assert "tokens/s, 1 stalled round left out" in lines(cards(scene(ONE), 240, 3))[0]
    assert lines(cards(scene(ONE), 80, 3)) == lines(cards(scene(USUAL), 80, 3))


def test_a_round_that_is_looked_at_says_what_it_lost() -> None:
    looked = Scene(scene(ONE).state, cursor=3 * STALLED)
    assert f"round {STALLED + 1}: 5 drafted, 2 accepted, stalled 1.06 s" in lines(tree(looked, 70, 10))[0]
    assert "1060 ms without a processor" in page(lines(inspect(looked, 90, 12)))
    assert "without a processor" not in page(
        [*lines(tree(scene(ONE), 60, 10)), *lines(inspect(Scene(looked.state, cursor=0), 90, 12))]
    )


def test_a_narrow_tree_still_says_that_its_round_stalled() -> None:
    assert "stalled 1.06 s" in lines(tree(Scene(scene(ONE).state, cursor=3 * STALLED), 34, 10))[0]


def test_the_curve_of_the_rate_goes_on_as_if_nothing_had_happened() -> None:
    usual, one = (scene(events).state.lane.curves.rate.points for events in (USUAL, ONE))
    assert list(one) == pytest.approx(list(usual))


def test_times_of_a_round_are_those_of_the_others() -> None:
    usual, one = (scene(events).state for events in (USUAL, ONE))
    assert lines(times_table(one, one.race.tallies["dynatree"], 40)) == lines(
        times_table(usual, usual.race.tallies["dynatree"], 40)
    )


def test_what_limits_a_method_is_told_by_the_other_rounds() -> None:
    usual, one = (scene(events).state.race for events in (USUAL, ONE))
    assert explained(one, "dynatree", "dynatree") == explained(usual, "dynatree", "dynatree")
    limits = bottleneck(one.tallies["dynatree"], one.tallies["ar"])
    assert limits is not None
    assert limits.speedup == pytest.approx(one.figures()["dynatree"].speedup)


def test_two_recordings_are_compared_without_it() -> None:
    usual, one = (scene(events).state for events in (USUAL, ONE))
    title, head, a, b, ratio, *_ = lines(table((usual, one), (120, 8)))
    assert "1 stalled round left out" in title
    assert head.split()[3:7] == ["tokens/s", "L-bar", "acc.", "rate"]
    assert a.split()[3:] == b.split()[3:]
    assert set(ratio.split()[4:-1]) == {"1.00"}


def test_a_comparison_of_settings_is_without_it() -> None:
    usual, one = (samples_of(scene(events).state.lane) for events in (USUAL, ONE))
    found = {difference.figure: difference for difference in compared(usual, one) or ()}
    assert found["tokens_per_second"].a == pytest.approx(150)
    assert found["tokens_per_second"].b == pytest.approx(150)
    many = {difference.figure: difference for difference in compared(usual, samples_of(scene(MANY).state.lane)) or ()}
    assert many["tokens_per_second"].b == pytest.approx(3 * ROUNDS / (0.02 * ROUNDS + 20 * 0.03))


def log_of(events: Iterable[Event]) -> SessionLog:
    state, log = RunState(), SessionLog()
    for event in events:
        state = apply(state, event)
        log = log.apply(event, state)
    return log


def test_the_best_knobs_are_found_without_it() -> None:
    def rate(events: list[Event]) -> float:
        found = log_of(events).best()
        assert found is not None
        return found[1].rate

    assert rate(ONE) == pytest.approx(rate(USUAL))
    assert rate(MANY) == pytest.approx(3 * ROUNDS / (0.02 * ROUNDS + 20 * 0.03))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (ONE, "rates leave out 1 stalled round (1.08 s)"),
        (MANY, "the machine is busy: 20 rounds waited long for a processor; rates count them"),
    ],
)
def test_tables_of_text_and_pages_say_so(events: list[Event], words: str) -> None:
    said = StringIO()
    transcript = Transcript(StringIO(), said, as_json=False)
    for event in events:
        transcript.feed(event)
    transcript.finish()
    assert words in said.getvalue().splitlines()
    assert words in summary_lines(log_of(events))
    assert words in replay_page("run.jsonl", [events]).body


def test_without_a_stalled_round_nothing_is_said_of_any() -> None:
    said = StringIO()
    transcript = Transcript(StringIO(), said, as_json=False)
    for event in USUAL:
        transcript.feed(event)
    transcript.finish()
    assert "stall" not in said.getvalue()
    assert not [line for line in summary_lines(log_of(USUAL)) if "stall" in line]
    assert "rates leave out" not in replay_page("run.jsonl", [USUAL]).body.replace("rounds that rates leave out", "")


def test_a_table_of_rounds_tells_what_each_lost() -> None:
    rows = [row.split(",") for row in rounds_csv(ONE).splitlines()]
    lost = [row[rows[0].index("stalled_s")] for row in rows[1:] if row[0] == "dynatree"]
    assert lost == ["" if number != STALLED else "1.06" for number in range(ROUNDS)]


def test_a_recording_that_claims_endless_stalls_is_refused() -> None:
    checker = Checker()
    checker.event(encode(run()), 1)
    checker.event(encode(of_dynatree({0: 0.5}, 1)[0]), 2)
    with pytest.raises(RecordingError, match="line 3: a time is 1e"):
        checker.event(encode(structs.replace(tree_round(1), t=9.0, stalled_s=1e300)), 3)


def test_a_stall_at_the_beginning_does_not_make_the_show_too_fast() -> None:
    def script(*_: object) -> Iterator[Event]:
        return iter([structs.replace(each, method="ar") if isinstance(each, Round) else each for each in events])

    events: list[Event] = [run(("ar",)), *of_dynatree({2: 60.0}, 20), Summary(methods={})]
    source = EngineSource(Session(("one",), config=RunConfig(("ar",))), lambda *_: Loaded(script), rest_s=60.0)
    source.start()
    while not any(isinstance(record, Summary) for record in source.records):
        pass
    assert source.speed == readable_speed(150)
    assert source.close(60.0)
