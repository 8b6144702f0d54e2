"""A run over several processes reports its ranks in recordings, text, JSON, on the screen and at its end."""

import io
import json
from collections.abc import Sequence

from msgspec import structs

from decoder.events import Event, Run, Summary, decode_line, encode
from dynatui.cli import headless
from dynatui.record.transcript import Transcript
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.report.replay import replay_page
from dynatui.screen.run import lines as closing_lines
from dynatui.state.run_state import RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import HOSTILE, lines, story

PEAKS = [2_500_000_000, 1_250_000_000]


def spread(ranks: Sequence[str] = ("cuda:0", "cuda:1")) -> list[Event]:
    """Events of a run over two processes."""
    run, *events, summary = story()
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    told = structs.replace(run, ranks=list(ranks))
    return [told, *events, structs.replace(summary, peak_bytes_by_rank=PEAKS)]


def printed(events: list[Event], *, as_json: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    headless.replay(events, Transcript(out, err, as_json=as_json))
    return out.getvalue(), err.getvalue()


def after(events: list[Event]) -> tuple[RunState, SessionLog]:
    state, log = RunState(), SessionLog()
    for event in events:
        state = apply(state, event)
        log = log.apply(event, state)
    return state, log


def test_events_keep_them_and_a_recording_from_before_is_read() -> None:
    run, *_, summary = spread()
    assert decode_line(encode(run), 1) == run
    assert decode_line(encode(summary), 1) == summary
    run, *_, summary = story()
    fields = json.loads(encode(run))
    del fields["ranks"]
    assert decode_line(json.dumps(fields).encode(), 1) == run
    assert b"peak_bytes_by_rank" not in encode(summary)


NAMED, MEMORY = "2 processes on cuda:0, cuda:1", "peak memory by process: 2.50, 1.25 GB"


def test_every_place_names_them_and_their_memory_where_there_are_several() -> None:
    _, said = printed(spread(), as_json=False)
    page = replay_page("run", [spread()]).body
    state, _ = after(spread())
    _, log = after([*spread(), *spread()[:3]])
    assert all(f"on {NAMED}" in text for text in (said, page))
    assert NAMED in lines(status(Scene(state), 240, 1))[0]
    assert f"{MEMORY}\n" in said
    assert MEMORY in page
    assert MEMORY in closing_lines(log)
    alone = (*printed(story(), as_json=False), replay_page("run", [story()]).body, *closing_lines(after(story())[1]))
    assert not any("by process" in text for text in alone)


def test_json_has_them_and_only_then() -> None:
    several, one = (json.loads(printed(events, as_json=True)[0]) for events in (spread(), story()))
    assert (several["ranks"], several["peak_bytes_by_rank"]) == (["cuda:0", "cuda:1"], PEAKS)
    assert not {"ranks", "peak_bytes_by_rank"} & one.keys()


def test_many_devices_are_named_by_the_first_and_the_last_and_cannot_steer_the_terminal() -> None:
    run, *_ = spread([f"cuda:{number}" for number in range(4)] * 2)
    assert isinstance(run, Run)
    assert run.place == "8 processes on cuda:0 to cuda:3"
    state, _ = after(spread(ranks=[HOSTILE, "cpu"]))
    assert state.run is not None
    assert "\x1b" not in state.run.place
