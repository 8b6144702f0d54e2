"""The places where the program tells of a run, each as text."""

from collections.abc import Callable, Iterable
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
from dynatui.state.run_state import Prompt, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import lines, text_of


def after(events: Iterable[Event]) -> tuple[Scene, SessionLog]:
    state, found = RunState(), SessionLog()
    for record in (Prompt(1, 1), *events):
        state = apply(state, record)
        found = found.apply(record, state)
    return Scene(state, results=found.results), found


def scene(events: Iterable[Event]) -> Scene:
    return after(events)[0]


def printed(events: Iterable[Event], *, as_json: bool = False) -> tuple[str, str]:
    out, said = StringIO(), StringIO()
    transcript = Transcript(out, said, as_json=as_json)
    for event in events:
        transcript.feed(event)
    transcript.finish()
    return out.getvalue(), said.getvalue()


def _text(rows: Iterable[Row]) -> str:
    return "\n".join(lines(rows))


PLACES: dict[str, Callable[[list[Event]], str]] = {
    "headline": lambda events: text_of(headline(scene(events).state)[0]),
    "tile": lambda events: _text(cards(scene(events), 200, 3)),
    "race": lambda events: _text(race(scene(events), 120, 12)),
    "prompts": lambda events: _text(prompts(scene(events), 120, 8)),
    "log": lambda events: _text(log(scene(events), 120, 12)),
    "status": lambda events: _text(status(scene(events), 240, 1)),
    "exit summary": lambda events: "\n".join(summary_lines(after(events)[1])),
    "transcript": lambda events: printed(events)[1],
    "table of figures": figures_csv,
    "page": lambda events: replay_page("run.jsonl", [events]).body,
}
