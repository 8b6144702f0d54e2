"""Events of sessions for tests without a server: readings, a gap, a restart, and what a history tells of pages."""

from collections.abc import Sequence

from msgspec import structs

from dynatui.servers.attach.events import (
    Answer,
    Drafting,
    Event,
    Figures,
    Gap,
    Opening,
    Reading,
    RequestSent,
    Server,
    Wasted,
)
from dynatui.servers.attach.figures import History, lines_of
from dynatui.servers.attach.servers import KINDS, Kind, recognised

OPENING = Opening(version="0.1.0", started_at="2026-01-02T03:04:05Z", url="http://host:8000", interval_s=1.0)
SERVER = Server(t=0.0, kind="vllm", url="http://host:8000/metrics", models=["meta-llama/Llama-3.1-8B-Instruct"])


def figures(seconds: float, rounds: int = 100, accepted: int = 170) -> Figures:
    """Figures of rounds that drafted 3 tokens each."""
    share = accepted / (3 * rounds)
    return Figures(
        seconds=seconds,
        drafts=rounds,
        drafted=3 * rounds,
        accepted=accepted,
        generated=rounds + accepted,
        tokens_per_round=1 + accepted / rounds,
        acceptance_rate=share,
        acceptance_by_position=[min(1.0, 1.4 * share), share, 0.6 * share],
        drafted_per_second=3 * rounds / seconds,
        accepted_per_second=accepted / seconds,
        tokens_per_second=(rounds + accepted) / seconds,
    )


def reading(t: float, accepted: int = 170, *, restarted: bool = False) -> Reading:
    """A reading over one second with 100 rounds, in a session that has lasted `t` seconds."""
    return Reading(
        t=t, restarted=restarted, interval=figures(1.0, accepted=accepted), session=figures(max(1.0, t), 500, 850)
    )


WASTED = Wasted(since=1.0, drafts=4880, drafted=14640, accepted=439, tokens_per_round=1.09, acceptance_rate=439 / 14640)
DRAFTING = Drafting(steps=5, draft_tokens=6, cap_length=4.4, block_accept_length=3.6)
FIRST = Reading(t=0.0, interval=Figures(seconds=0.0), session=Figures(seconds=0.0))
ASKED = RequestSent(t=1.5, prompt="The door opened", max_new_tokens=8)
ANSWER = Answer(
    t=2.0,
    seconds=0.5,
    model="meta-llama/Llama-3.1-8B-Instruct",
    prompt="The door opened",
    text=" and the light fell on the floor",
    generated=8,
    rounds=4,
    drafted=10,
    accepted=4,
    tokens_per_round=2.0,
    acceptance_rate=0.4,
    drafted_by_round=(3, 3, 3, 1),
    accepted_by_round=(2, 0, 3, 1),
)
GAP = Gap(t=61.0, reason="cannot reach host:8000: Connection refused")


def session(seconds: int = 60) -> list[Event]:
    """A session whose acceptance rises and falls."""
    return [OPENING, SERVER, FIRST, *(reading(float(t), 100 + t % 40 * 4) for t in range(1, seconds + 1))]


def wasting(seconds: int = 60) -> list[Event]:
    """A session whose drafts are wasted from second 20 on."""
    return [*session(19), *(structs.replace(reading(float(t), 9), wasted=WASTED) for t in range(20, seconds + 1))]


EVERYTHING: list[Event] = [
    *session(3),
    GAP,
    reading(62.0, restarted=True),
    structs.replace(reading(63.0), wasted=WASTED, drafting=DRAFTING),
]
"""A session with every kind of event but a request and its answer."""


def known(text: str) -> tuple[Kind, Sequence[str]]:
    """The kind of server that has this page, and the page's lines."""
    found = recognised(lines_of(text))
    assert found is not None
    return found


def told(*pages: str, kind: str = "", apart_s: float = 1.0) -> list[Server | Reading]:
    """The events of pages, of a kind of server or else of the kind that each page is recognised as."""
    history, events = History(), list[Server | Reading]()
    for number, text in enumerate(pages):
        kind_of_page, lines = (KINDS[kind], lines_of(text)) if kind else known(text)
        events += history.read("http://host/metrics", kind_of_page, lines, number * apart_s)
    return events


def readings(*pages: str, kind: str = "", apart_s: float = 1.0) -> list[Reading]:
    return [event for event in told(*pages, kind=kind, apart_s=apart_s) if isinstance(event, Reading)]
