"""Every place that tells of a run tells the same: one speed-up or reason, texts that differ by design, and ranks."""

import json
import re
from collections.abc import Sequence

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Run, Summary, decode_line, encode
from dynatui.number_format import short
from dynatui.render.headline import compared
from dynatui.render.ink import Ink, Rows
from dynatui.render.inspect import inspect
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.words import BY_DESIGN, WHY_BY_DESIGN
from dynatui.screen.run import lines as exit_lines
from dynatui.sources.source import Conditions, met
from dynatui.state.run_state import RunState, apply
from tests.dynatui.places import PLACES, after, printed, scene
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, raced, run, state_of, story, tree_round

TREES, PLAIN = 30, 45
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
def test_every_place_has_the_same_figure(place: str) -> None:
    value = scene(QUIET).state.figures()["dynatree"].speedup
    assert value == pytest.approx(3 / 1.4, rel=0.05)
    assert short(value) in PLACES[place](QUIET)


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
    assert MEMORY in exit_lines(after([*spread(), *spread()[:3]])[1])


def test_many_devices_are_named_by_the_first_and_the_last_and_cannot_steer_the_terminal() -> None:
    run, *_ = spread([f"cuda:{number}" for number in range(4)] * 2)
    assert isinstance(run, Run)
    assert run.place == "8 processes on cuda:0 to cuda:3"
    state = scene(spread(ranks=[HOSTILE, "cpu"])).state
    assert state.run is not None
    assert "\x1b" not in state.run.place
