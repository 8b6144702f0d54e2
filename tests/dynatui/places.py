"""The places where the program tells of a run, each as text."""

from collections.abc import Callable, Iterable, Sequence
from io import StringIO

from decoder.events import Event
from dynatui.record.export import figures_csv
from dynatui.record.transcript import Transcript
from dynatui.render.cards import cards, headline
from dynatui.render.ink import Row
from dynatui.render.log import log
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.report.replay import replay_page
from dynatui.screen.run import lines as summary_lines
from dynatui.state.run_state import Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import lines, text_of


def after(records: Sequence[Record]) -> tuple[Scene, SessionLog]:
    """Scene and log after records; without a prompt, those of the only prompt."""
    state, found = RunState(), SessionLog()
    for record in records if isinstance(records[0], Prompt) else (Prompt(1, 1), *records):
        state = apply(state, record)
        found = found.apply(record, state)
    return Scene(state, results=found.results), found


def scene(records: Sequence[Record]) -> Scene:
    return after(records)[0]


def events_of(records: Iterable[Record]) -> list[Event]:
    return [record for record in records if isinstance(record, Event)]


def printed(records: Iterable[Record], *, as_json: bool = False) -> tuple[str, str]:
    out, said = StringIO(), StringIO()
    transcript = Transcript(out, said, as_json=as_json)
    for event in events_of(records):
        transcript.feed(event)
    transcript.result()
    return out.getvalue(), said.getvalue()


def _text(rows: Iterable[Row]) -> str:
    return "\n".join(lines(rows))


PLACES: dict[str, Callable[[Sequence[Record]], str]] = {
    "headline": lambda records: text_of(headline(scene(records).state)[0]),
    "tile": lambda records: _text(cards(scene(records), 200, 3)),
    "race": lambda records: _text(race(scene(records), 120, 12)),
    "prompts": lambda records: _text(prompts(scene(records), 120, 8)),
    "log": lambda records: _text(log(scene(records), 120, 12)),
    "status": lambda records: _text(status(scene(records), 240, 1)),
    "exit summary": lambda records: "\n".join(summary_lines(after(records)[1])),
    "transcript": lambda records: printed(records)[1],
    "table of figures": lambda records: figures_csv(events_of(records)),
    "page": lambda records: replay_page("run.jsonl", [events_of(records)]).body,
}
