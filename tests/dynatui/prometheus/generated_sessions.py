"""Generated sessions: consecutive runs, some interrupted, of methods with and without a draft."""

from hypothesis import strategies as st
from msgspec import structs

from decoder.events import End, Event, Knob, Start, Summary
from tests.dynatui.scripted_runs import plain_round, run

METHODS = ("auto", "alg1", "ar", "hf")
SECONDS = st.floats(0, 200, allow_nan=False)


@st.composite
def trees(draw: st.DrawFn, method: str) -> tuple[list[int], list[int]]:
    """Parents of the nodes, and an accepted path; only a root for methods that draft no tree."""
    most = 0 if method in ("ar", "hf") else 6
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, 1 + draw(st.integers(0, most))))]
    path, node = list[int](), draw(st.integers(0, len(parents) - 1))
    while node > 0:
        path, node = [node, *path], parents[node]
    if method == "alg1":  # its root is drafted and comes first in the path
        path = draw(st.sampled_from(([], [0, *path])))
    return parents, path


@st.composite
def rounds(draw: st.DrawFn, method: str) -> list[Event]:
    told: list[Event] = [Start(method=method, prefill_s=draw(SECONDS))]
    t, position = 0.0, 0
    for number in range(draw(st.integers(0, 4))):
        parents, accepted = draw(trees(method))
        t += draw(SECONDS)
        committed = list(range(draw(st.integers(1, len(accepted) + 1))))
        told.append(
            structs.replace(
                plain_round(method, number, text=""),
                position=position,
                t=t,
                wall_s=t,
                draft_forwards=None if method == "hf" else 1,
                tokens=[7] * len(parents),
                parents=parents,
                logprobs=[0.0] * len(parents),
                pieces=[""] * len(parents),
                accepted=accepted,
                committed=committed,
            )
        )
        if draw(st.booleans()):
            told.append(Knob(method=method, round=number + 1, name="tau_h", old=0.9, new=0.8, source="user"))
        position += len(committed)
    return told


@st.composite
def sessions(draw: st.DrawFn) -> list[Event]:
    """All events of a few runs, whose methods take turns in random order."""
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 3))):
        methods = draw(st.lists(st.sampled_from(METHODS), min_size=1, unique=True))
        events.append(run(methods, prompt="Once"))
        waiting = [draw(rounds(method)) for method in methods]
        while waiting := [part for part in waiting if part]:
            events.append(draw(st.sampled_from(waiting)).pop(0))
        events += [End(method=method, reason="stopped") for method in methods]
        events += draw(st.sampled_from(([], [Summary(methods={})])))
    return events
