"""A run over several processes reports its ranks in recordings, text, JSON, on the screen and at its end."""

import io
import json
from pathlib import Path

import pytest
from msgspec import structs

from decoder.errors import RecordingError
from decoder.events import Event, Run, Summary, decode_line, encode
from dynatui.cli import headless
from dynatui.record.checks import MOST_RANKS
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.report.replay import replay_page
from dynatui.screen.run import lines as closing_lines
from dynatui.state.run_state import RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import HOSTILE, lines, story

PEAKS = [2_500_000_000, 1_250_000_000]


def spread(ranks: list[str] | None = None, peaks: list[int] | None = None) -> list[Event]:
    """Events of a run over two processes."""
    run, *events, summary = story()
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    told = structs.replace(run, ranks=["cuda:0", "cuda:1"] if ranks is None else ranks)
    return [told, *events, structs.replace(summary, peak_bytes_by_rank=PEAKS if peaks is None else peaks)]


def printed(events: list[Event], *, as_json: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    headless.replay_events(events, Transcript(out, err, as_json=as_json))
    return out.getvalue(), err.getvalue()


def after(events: list[Event]) -> tuple[RunState, SessionLog]:
    state, log = RunState(), SessionLog()
    for event in events:
        state = apply(state, event)
        log = log.apply(event, state)
    return state, log


def test_events_keep_them() -> None:
    run, *_, summary = spread()
    assert decode_line(encode(run), 1) == run
    assert decode_line(encode(summary), 1) == summary


def test_a_recording_from_before_is_read_and_one_process_tells_no_memory_of_ranks() -> None:
    run, *_, summary = story()
    fields = json.loads(encode(run))
    del fields["ranks"]
    assert decode_line(json.dumps(fields).encode(), 1) == run
    assert b"peak_bytes_by_rank" not in encode(summary)


def test_text_names_them_and_their_memory() -> None:
    _, said = printed(spread(), as_json=False)
    assert "on 2 processes on cuda:0, cuda:1 in" in said
    assert "peak memory by process: 2.50, 1.25 GB\n" in said


def test_many_devices_are_named_by_the_first_and_the_last() -> None:
    run, *_ = spread([f"cuda:{number}" for number in range(4)] * 2)
    assert isinstance(run, Run)
    assert run.place == "8 processes on cuda:0 to cuda:3"


def test_pages_name_them_and_their_memory() -> None:
    page = replay_page("run", [spread()]).body
    assert "on 2 processes on cuda:0, cuda:1" in page
    assert "peak memory by process: 2.50, 1.25 GB" in page
    assert "by process" not in replay_page("run", [story()]).body


def test_json_has_them_and_only_then() -> None:
    found, _ = printed(spread(), as_json=True)
    report = json.loads(found)
    assert (report["ranks"], report["peak_bytes_by_rank"]) == (["cuda:0", "cuda:1"], PEAKS)
    found, _ = printed(story(), as_json=True)
    assert not {"ranks", "peak_bytes_by_rank"} & json.loads(found).keys()


def test_the_header_names_them() -> None:
    state, _ = after(spread())
    assert "2 processes on cuda:0, cuda:1" in lines(status(Scene(state), 240, 1))[0]


def test_the_summary_at_the_end_tells_their_memory() -> None:
    _, log = after([*spread(), *spread()[:3]])
    assert "peak memory by process: 2.50, 1.25 GB" in closing_lines(log)
    assert not any("by process" in line for line in closing_lines(after(story())[1]))


def test_devices_of_a_recording_cannot_steer_the_terminal() -> None:
    state, _ = after(spread(ranks=[HOSTILE, "cpu"]))
    assert state.run is not None
    assert "\x1b" not in state.run.place


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (spread(ranks=["cpu"] * (MOST_RANKS + 1)), "line 1: there are 4097 processes"),
        (spread(ranks=["x" * 2000]), "line 1: a name has 2000 characters"),
        (spread(peaks=[1] * (MOST_RANKS + 1)), "4097 processes"),
    ],
)
def test_more_of_them_than_any_run_has_are_refused(events: list[Event], said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode, events)))
    with pytest.raises(RecordingError, match=said):
        read_events(path)
