"""The answer of a watched server to our request: figures, a column for each round, and the text.

Figures that the server does not report are omitted. If the server reports no rounds, the panel shows the reason. Text
from the server is cleaned here by `clean_line`.
"""

from dynatui.attach.events import Answer
from dynatui.clean import clean_line
from dynatui.number_format import count, percent, short
from dynatui.render.ink import Row, Rows, Span, frame, inside, merged, trend, wrapped
from dynatui.render.server import Size
from dynatui.render.server_words import time_text
from dynatui.state.server_state import ServerState

_TITLE: Row = (
    *(("Our request", "title"), (" ─ ", "dim"), ("█", "accepted"), (" all ", "dim"), ("▄", "bar"), (" some ", "dim")),
    *(("·", "bar"), (" none accepted in a round", "dim")),
)


def answer(state: ServerState, size: Size) -> Rows:
    answered, room = state.answer, inside(size)[1]
    width = max(1, inside(size)[0])
    if answered is None:
        return frame(_TITLE[:1], _waiting(state, width), size)
    if answered.error:
        return frame(_TITLE[:1], wrapped([(clean_line(answered.error), "warn")], width), size)
    summary = wrapped([(_summary(answered), "strong")], width)
    columns = _rounds(answered, width)
    title, rounds = (_TITLE, columns) if columns else (_TITLE[:1], wrapped([(_reason(state), "dim")], width))
    text = wrapped([(clean_line(answered.text), "plain")], width)
    return frame(title, [*summary, *rounds[: max(1, room - len(summary) - 1)], *text][: max(0, room)], size)


def _waiting(state: ServerState, width: int) -> Rows:
    if state.request is None:
        return []
    heading = wrapped([(f"sent {time_text(state.t - state.request.t)} ago, no answer yet:", "strong")], width)
    return [*heading, *wrapped([(clean_line(state.request.prompt), "dim")], width)]


def _summary(answered: Answer) -> str:
    parts = (
        (answered.rounds, f"{count(answered.rounds)} rounds"),
        (answered.tokens_per_round, f"L-bar {short(answered.tokens_per_round)}"),
        (answered.acceptance_rate, f"{percent(answered.acceptance_rate)} accepted"),
        (answered.seconds, f"{count(answered.generated)} tokens in {short(answered.seconds, 1)} s"),
    )
    return ", ".join(text for figure, text in parts if figure is not None)


def _reason(state: ServerState) -> str:
    if state.kind is not None and state.kind.name == "vllm":
        return "vLLM reports each round if it is started with --per-request-spec-decode-metrics detailed"
    return f"{state.kind.title if state.kind else 'the server'} does not report rounds one by one"


def _rounds(answered: Answer, width: int) -> Rows:
    highest = max((1, *answered.drafted_by_round))
    cells: list[Span] = [
        (trend([accepted], 1, 0.0, highest) if accepted else "·", "accepted" if accepted == drafted else "bar")
        for accepted, drafted in zip(answered.accepted_by_round, answered.drafted_by_round, strict=True)
    ]
    return [merged(cells[start : start + width]) for start in range(0, len(cells), width)]
