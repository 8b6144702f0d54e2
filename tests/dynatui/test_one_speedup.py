"""One speed-up, or one reason why there is none, wherever the screen and its texts speak of one."""

import json
import re
from collections.abc import Callable, Iterable
from io import StringIO

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Summary
from dynatui.number_format import short
from dynatui.record.export import figures_csv
from dynatui.record.transcript import Transcript
from dynatui.render.cards import cards
from dynatui.render.headline import headline
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.report.replay import replay_page
from dynatui.screen.run import lines as summary_lines
from dynatui.state.run_state import Prompt, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import lines, plain_round, raced, run, text_of, tree_round

TREES, PLAIN = 30, 45


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


def shown(events: Iterable[Event]) -> tuple[Scene, SessionLog]:
    state, log = RunState(), SessionLog()
    for record in (Prompt(1, 1), *events):
        state = apply(state, record)
        log = log.apply(record, state)
    return Scene(state, results=log.results), log


def told(events: Iterable[Event], *, as_json: bool) -> str:
    out, said = StringIO(), StringIO()
    transcript = Transcript(out, said, as_json=as_json)
    for event in events:
        transcript.feed(event)
    return out.getvalue() if as_json else said.getvalue()


PLACES: dict[str, Callable[[list[Event]], str]] = {
    "headline": lambda events: text_of(headline(shown(events)[0].state)[0]),
    "tile": lambda events: "\n".join(lines(cards(shown(events)[0], 200, 3))),
    "race": lambda events: "\n".join(lines(race(shown(events)[0], 120, 12))),
    "prompts": lambda events: "\n".join(lines(prompts(shown(events)[0], 120, 8))),
    "exit summary": lambda events: "\n".join(summary_lines(shown(events)[1])),
    "transcript": lambda events: told(events, as_json=False),
    "table of figures": figures_csv,
    "page": lambda events: replay_page("run.jsonl", [events]).body,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_has_the_same_figure(place: str) -> None:
    value = shown(QUIET)[0].state.figures()["dynatree"].speedup
    assert value == pytest.approx(3 / 1.4, rel=0.05)
    assert short(value) in PLACES[place](QUIET)


@pytest.mark.parametrize("events", [BUSY, OLD], ids=["busy", "an earlier version's summary"])
@pytest.mark.parametrize("place", PLACES)
def test_on_a_busy_machine_no_place_has_a_figure_and_each_has_the_reason(place: str, events: list[Event]) -> None:
    page = PLACES[place](events)
    assert "busy" in page
    assert "6.73" not in page
    assert not re.findall(r"\d*\.\d+x", page)
    assert "the speed of plain decoding" not in page
    assert "times as fast" not in page


@pytest.mark.parametrize("place", ["headline", "tile", "exit summary", "transcript", "page"])
def test_where_there_is_room_the_reason_is_said_in_the_same_words(place: str) -> None:
    assert "machine busy: no figure" in PLACES[place](BUSY)


def test_passes_are_still_told_on_a_busy_machine() -> None:
    assert f"{3 * TREES} tokens in {TREES} passes" in PLACES["headline"](BUSY)


@pytest.mark.parametrize("events", [BUSY, OLD], ids=["busy", "an earlier version's summary"])
def test_json_has_null_and_the_reason(events: list[Event]) -> None:
    for method in json.loads(told(events, as_json=True))["methods"].values():
        assert (method["speedup"], method["speedup_reason"]) == (None, "machine busy")


def test_json_has_the_interval_of_a_figure() -> None:
    found = json.loads(told(QUIET, as_json=True))["methods"]["dynatree"]
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert found["speedup_reason"] is None


def test_the_tile_has_no_figure_before_the_headline_has_one() -> None:
    events = QUIET[:20]
    assert "plain decoding" not in PLACES["headline"](events)
    assert "warming up" in PLACES["tile"](events)
