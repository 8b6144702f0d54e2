"""Every place tells the same of a run: speed-up or reason, stalled rounds, texts that differ by design, and ranks."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import pytest
from msgspec import structs

from decoder.analysis.bottleneck import bottleneck, explained
from decoder.analysis.metrics import fold
from decoder.events import End, Event, Round, Run, Start, Summary, decode_line, encode
from decoder.run.config import RunConfig
from dynatui.number_format import short
from dynatui.record.export import rounds_csv
from dynatui.render.cards import cards, compared
from dynatui.render.ink import Ink, Rows
from dynatui.render.inspect import inspect
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.render.tree import tree
from dynatui.render.versus import table
from dynatui.render.words import WHY_BY_DESIGN
from dynatui.render.work import times_table
from dynatui.report.replay import replay_page
from dynatui.result import BY_DESIGN, interval, result, times_plain
from dynatui.screen.run import lines as summary_lines
from dynatui.session import Session
from dynatui.sources.engine import EngineSource, Loaded
from dynatui.sources.source import Conditions, met, readable_speed
from dynatui.state import turn_effect
from dynatui.state.run_state import Prompt, Record, RunState, apply
from tests.dynatui.places import PLACES, after, printed, scene
from tests.dynatui.render.extreme_scenes import is_drawn
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, raced, run, state_of, story, tree_round
from tests.dynatui.several_texts import session, text

TREES, PLAIN, COUNT = 30, 45, 3
SPEEDS = ("headline", "tile", "race", "prompts", "exit summary", "transcript", "table of figures", "page")


def ended(lost_s: float, *, reported: float | None = None) -> list[Event]:
    """A whole run in which every second tree round stalled for `lost_s`; `reported` is the speed-up that its summary
    claims.
    """
    late_s, trees = 0.0, []
    for number in range(TREES):
        stalled_s = lost_s * (number % 2)
        late_s += stalled_s
        event = tree_round(number)
        trees.append(structs.replace(event, t=1.4 * event.t + late_s, stalled_s=stalled_s or None))
    plain = (plain_round("ar", number) for number in range(PLAIN))
    ends = [End(method=name, reason="length") for name in ("dynatree", "ar")]
    events: list[Event] = [run(), *raced(trees, plain), *ends]
    summary = fold(events).figures()
    if reported is not None:
        summary["dynatree"] = structs.replace(summary["dynatree"], speedup=reported, speedup_reason=None)
    return [*events, Summary(methods=summary)]


QUIET, BUSY, OLD = ended(0.0), ended(0.5), ended(0.5, reported=6.73)
on_a_busy_machine = pytest.mark.parametrize("events", [BUSY, OLD], ids=["busy", "an earlier version's summary"])


@pytest.mark.parametrize("place", SPEEDS)
def test_every_place_has_the_same_figure_which_is_pooled_over_several_texts(place: str) -> None:
    value = scene(QUIET).state.figures()["dynatree"].speedup
    assert value == pytest.approx(3 / 1.4, rel=0.05)
    assert short(value) in PLACES[place](QUIET)
    for texts in (1, COUNT) if place not in ("table of figures", "page") else ():
        pooled = scene(session(texts)).state.pooled()["dynatree"].speedup
        assert short(pooled) in PLACES[place](session(texts))
        assert texts == 1 or short(pooled) != short(scene(session(texts)).state.figures()["dynatree"].speedup)


def test_texts_that_were_decoded_again_count_in_the_totals_of_the_prompts_too() -> None:
    first, *events = text(1)
    again: list[Record] = [Prompt(1, COUNT), structs.replace(first, started_at="later"), *events]
    looked = scene([*session(COUNT), *again])
    totals = lines(prompts(looked, 116, 12))
    pooled = interval(looked.state.pooled()["dynatree"])
    assert f"{COUNT + 1} texts under these settings; x plain {pooled}" in "\n".join(totals)


def test_its_interval_stands_beside_it_where_there_is_room() -> None:
    looked, found = after(session(COUNT))
    entry = looked.state.pooled()["dynatree"]
    exact = interval(entry)
    assert re.fullmatch(r"\(\d\.\d\d to \d\.\d\d\)", exact)
    pages = [lines(status(looked, 200, 1)), lines(cards(looked, 200, 3)), lines(prompts(looked, 116, 12))]
    pages += [lines(race(looked, 160, 9)), printed(session(COUNT))[1].splitlines(), summary_lines(found)]
    assert all(exact in "\n".join(page) for page in (*pages, result(looked.state.race)))
    assert f"{exact} plain decoding" in lines(cards(looked, 300, 3))[1]
    assert times_plain(entry)[0].endswith(f"{exact} the speed of plain decoding")


def test_a_narrow_table_of_the_result_leaves_out_its_last_columns() -> None:
    race_of_all = scene(session(COUNT)).state.race
    for width in range(30, 100):
        rows = result(race_of_all, width)
        assert max(map(len, rows)) <= width
        assert rows[0].split()[:2] == ["method", "x"]
    assert result(race_of_all)[0].endswith("texts")


@on_a_busy_machine
@pytest.mark.parametrize("place", SPEEDS)
def test_on_a_busy_machine_no_place_has_a_figure_and_each_has_the_reason(place: str, events: list[Event]) -> None:
    page = PLACES[place](events)
    assert "busy" in page
    assert not re.search(r"6\.73|\d*\.\d+x|the speed of plain decoding|times as fast", page)
    if place in ("headline", "tile", "exit summary", "transcript", "page"):  # where there is room
        assert "machine busy: no figure" in page


def test_before_the_headline_has_a_figure_the_tile_has_none_and_passes_are_told_on_a_busy_machine() -> None:
    assert f"{3 * TREES} tokens in {TREES} passes" in PLACES["headline"](BUSY)
    assert "plain decoding" not in PLACES["headline"](QUIET[:20])
    assert "warming up" in PLACES["tile"](QUIET[:20])


@on_a_busy_machine
def test_json_has_null_and_the_reason_or_the_figure_and_its_interval(events: list[Event]) -> None:
    for method in json.loads(printed(events, as_json=True)[0])["methods"].values():
        assert (method["speedup"], method["speedup_reason"]) == (None, "machine busy")
    found = json.loads(printed(QUIET, as_json=True)[0])["methods"]["dynatree"]
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert found["speedup_reason"] is None


def played(method: str, **parameters: int) -> list[Event]:
    other = structs.replace(plain_round(method, 1), committed=[99])
    begun = structs.replace(run((method, "ar")), methods={method: parameters, "ar": {}})
    return [begun, plain_round(method, 0), plain_round("ar", 0), other, plain_round("ar", 1)]


OTHER = played("streaming", sinks=0, window=2)
TOO_EARLY = played("streaming", sinks=0, window=3)
UNKNOWN = played("streaming")
LINEAR = played("linear")


def inks(rows: Rows) -> set[Ink]:
    return {ink for row in rows for _, ink in row}


def test_the_badge_says_by_design_from_the_first_other_token_on() -> None:
    assert compared(state_of(OTHER[:3])) == ((("same text", "good"),),)
    assert compared(state_of(OTHER)) == ((("differs by design from token 1", "dim"),), (("differs by design", "dim"),))
    assert compared(state_of(LINEAR))[0][0][1] == "warn"


def test_a_difference_is_by_design_only_after_tokens_were_lost_and_if_that_is_known() -> None:
    assert compared(state_of(TOO_EARLY)) == compared(state_of(LINEAR))
    assert state_of(TOO_EARLY).figures()["streaming"].identical_to_ar is False
    state = state_of(UNKNOWN)
    assert compared(state) == ()
    assert (state.figures()["streaming"].identical_to_ar, state.figures()["streaming"].first_difference) == (None, None)
    assert "by design" not in PLACES["page"](UNKNOWN)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("race", "first difference from ar at token 1: by design"),
        ("log", "first difference from ar at token 1"),
        ("log", BY_DESIGN),
        ("prompts", BY_DESIGN),
        ("exit summary", f"{BY_DESIGN}\nstreaming: {WHY_BY_DESIGN}"),
        ("transcript", "streaming: the text differs from that of ar by design\n"),
        ("page", "no, by design"),
    ],
)
def test_every_place_says_that_a_text_differs_by_design(place: str, words: str) -> None:
    assert words in PLACES[place]([*OTHER, Summary(methods=fold(OTHER).figures())] if place == "transcript" else OTHER)
    assert "by design" not in PLACES[place](LINEAR)


def test_what_differs_by_design_is_no_warning() -> None:
    page, inspected = race(scene(OTHER), 110, 20), inspect(Scene(scene(OTHER).state, cursor=1), 90, 10)
    assert BY_DESIGN in next(row for row in lines(page)[4:] if "streaming " in row)
    assert "ar has a different token here: by design" in "\n".join(lines(inspected))
    assert not {"bad", "warn"} & (inks(page) | inks(inspected))


def test_the_decoder_is_not_stopped_there() -> None:
    def stops(events: list[Event]) -> list[str]:
        conditions, state, found = Conditions(frozenset(["difference"])), RunState(), list[str]()
        for event in events:
            before, state = state, apply(state, event)
            found += [reason] if (reason := met(conditions, before, state, event)) else []
        return found

    assert stops(OTHER) == stops(UNKNOWN) == []
    assert stops(TOO_EARLY) == ["streaming differs from ar at token 1, round 2 of ar"]
    assert stops(LINEAR) == ["linear differs from ar at token 1, round 2 of ar"]


PEAKS = [2_500_000_000, 1_250_000_000]
MEMORY = "peak memory by process: 2.50, 1.25 GB"


def spread(ranks: Sequence[str] = ("cuda:0", "cuda:1")) -> list[Event]:
    """Events of a run over several processes."""
    run, *events, summary = story()
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    told = structs.replace(run, ranks=list(ranks))
    return [told, *events, structs.replace(summary, peak_bytes_by_rank=PEAKS)]


def test_events_and_json_have_ranks_and_only_then() -> None:
    run, *_, summary = spread()
    assert decode_line(encode(run), 1) == run
    assert decode_line(encode(summary), 1) == summary
    run, *_, summary = story()
    fields = json.loads(encode(run))
    del fields["ranks"]
    assert decode_line(json.dumps(fields).encode(), 1) == run
    assert b"peak_bytes_by_rank" not in encode(summary)
    several, one = (json.loads(printed(events, as_json=True)[0]) for events in (spread(), story()))
    assert (several["ranks"], several["peak_bytes_by_rank"]) == (["cuda:0", "cuda:1"], PEAKS)
    assert not {"ranks", "peak_bytes_by_rank"} & one.keys()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("transcript", ["on 2 processes on cuda:0, cuda:1 in", f"{MEMORY}\n"]),
        ("page", ["on 2 processes on cuda:0, cuda:1", MEMORY]),
        ("status", ["2 processes on cuda:0, cuda:1"]),
        ("exit summary", [MEMORY]),
    ],
)
def test_every_place_names_ranks_and_their_memory_where_there_are_several(place: str, words: list[str]) -> None:
    told = PLACES[place](spread())
    assert all(each in told for each in words)
    assert not re.search(r"by process|\d processes", PLACES[place](story()))


def test_the_memory_of_ranks_is_told_while_another_run_goes_on() -> None:
    assert MEMORY in summary_lines(after([*spread(), *spread()[:3]])[1])


def test_many_devices_are_named_by_the_first_and_the_last_and_cannot_steer_the_terminal() -> None:
    run, *_ = spread([f"cuda:{number}" for number in range(4)] * 2)
    assert isinstance(run, Run)
    assert run.place == "8 processes on cuda:0 to cuda:3"
    state = scene(spread(ranks=[HOSTILE, "cpu"])).state
    assert state.run is not None
    assert "\x1b" not in state.run.place


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


def page(rows: Iterable[str]) -> str:
    return " ".join(" ".join(rows).split())


def test_the_race_shows_speeds_without_stalled_rounds_unless_the_machine_is_busy_and_says_so() -> None:
    usual, one = (lines(race(scene(events), 78, 6)) for events in (USUAL, ONE))
    assert usual[1] == one[1]
    assert "150/s" in one[1]
    assert "3.00x" in one[1]
    assert "left out" not in usual[0]
    assert "rates leave out 1 stalled round (1.08 s)" in one[0]
    assert "1 stalled round left out" in lines(race(scene(ONE), 40, 6))[0]
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
    assert "speed, 1 stalled round left out" in lines(cards(scene(ONE), 240, 3))[0]
    assert "speed, 1 stalled " in lines(cards(scene(ONE), 80, 3))[0]
    assert lines(cards(scene(USUAL), 80, 3))[0].startswith("▏speed  ")


def test_a_round_that_is_looked_at_says_what_it_lost_also_where_it_is_narrow() -> None:
    looked = Scene(scene(ONE).state, cursor=3 * STALLED)
    assert f"round {STALLED + 1}: 5 drafted, 2 accepted, stalled 1.06 s" in lines(tree(looked, 70, 10))[0]
    assert "1060 ms without a processor" in page(lines(inspect(looked, 90, 12)))
    assert "without a processor" not in page(
        [*lines(tree(scene(ONE), 60, 10)), *lines(inspect(Scene(looked.state, cursor=0), 90, 12))]
    )
    assert "stalled 1.06 s" in lines(tree(Scene(scene(ONE).state, cursor=3 * STALLED), 34, 10))[0]


def test_curves_times_limits_and_comparisons_are_those_of_the_other_rounds() -> None:
    usual, one = (scene(events).state for events in (USUAL, ONE))
    assert list(one.lane.curves.rate.points) == pytest.approx(list(usual.lane.curves.rate.points))
    shown = [lines(times_table(state, state.race.tallies["dynatree"], 40)) for state in (usual, one)]
    assert shown[0] == shown[1]
    assert explained(one.race, "dynatree", "dynatree") == explained(usual.race, "dynatree", "dynatree")
    limits = bottleneck(one.race.tallies["dynatree"], one.race.tallies["ar"])
    assert limits is not None
    assert limits.speedup == pytest.approx(one.figures()["dynatree"].speedup)
    title, head, a, b, ratio, *_ = lines(table((usual, one), (120, 8)))
    assert "1 stalled round left out" in title
    assert head.split()[3:7] == ["tokens/s", "L-bar", "acc.", "rate"]
    assert a.split()[3:] == b.split()[3:]
    assert set(ratio.split()[4:-1]) == {"1.00"}


def test_the_effect_of_a_turn_and_the_settings_tried_are_found_without_it() -> None:
    def rates(events: list[Event]) -> tuple[float | None, float | None, float]:
        usual, other = (tuple(scene(each).state.lane.samples) for each in (USUAL, events))
        found = {difference.figure: difference for difference in turn_effect.compared(usual, other)}
        tried = after(events)[1].settings_tried()
        assert tried is not None
        return found["tokens_per_second"].a, found["tokens_per_second"].b, tried.rows[0].alone.rate

    busy = 3 * ROUNDS / (0.02 * ROUNDS + 20 * 0.03)
    assert rates(ONE) == pytest.approx((150, 150, rates(USUAL)[-1]))
    assert rates(MANY) == pytest.approx((150, busy, busy))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (ONE, "rates leave out 1 stalled round (1.08 s)"),
        (MANY, "the machine is busy: 20 rounds waited long for a processor; rates count them"),
    ],
)
def test_tables_of_text_and_pages_say_so(events: list[Event], words: str) -> None:
    said = printed(events)[1]
    assert words in said.splitlines()
    assert words in summary_lines(after(events)[1])
    assert words in replay_page("run.jsonl", [events]).body


def test_without_a_stalled_round_nothing_is_said_of_any() -> None:
    said = printed(USUAL)[1]
    assert "stall" not in said
    assert not [line for line in summary_lines(after(USUAL)[1]) if "stall" in line]
    assert "rates leave out" not in replay_page("run.jsonl", [USUAL]).body.replace("rounds that rates leave out", "")


def test_a_table_of_rounds_tells_what_each_lost() -> None:
    rows = [row.split(",") for row in rounds_csv(ONE).splitlines()]
    lost = [row[rows[0].index("stalled_s")] for row in rows[1:] if row[0] == "dynatree"]
    assert lost == ["" if number != STALLED else "1.06" for number in range(ROUNDS)]


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
