"""A session of several texts, each with another speed-up."""

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Summary
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.scripted_runs import plain_round, raced, run, tree_round


def text(number: int) -> list[Event]:
    trees = [tree_round(place) for place in range(40)]
    ends = [0.03 * (place + 1) * (1 + 0.2 * number) + 0.002 * (place % 4) for place in range(len(trees))]
    own = [structs.replace(event, t=t) for event, t in zip(trees, ends, strict=True)]
    plain = [plain_round("ar", place) for place in range(60)]
    begun = structs.replace(run(prompt=f"Text {number}"), started_at=f"2026-01-01T00:00:{number:02}Z")
    ended = [End(method="dynatree", reason="length"), End(method="ar", reason="length")]
    events: list[Event] = [begun, *raced(own, plain), *ended]
    return [*events, Summary(methods=fold(events).figures())]


def session(texts: int) -> list[Record]:
    return [record for number in range(1, texts + 1) for record in (Prompt(number, texts), *text(number))]
