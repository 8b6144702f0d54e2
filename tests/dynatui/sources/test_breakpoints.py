"""Tests of breakpoints: each condition stops the decoder at the first event that meets it."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from decoder.events import End, Event, Knob, Round, Start
from dynatui.sources.source import BREAKS, EXPLANATIONS, LABELS, Break, Conditions, met
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import plain_round, run, tree_round, turned_temperature


def _stops(on: Break, events: Iterable[Event], limit: float = 0.3) -> list[str]:
    conditions, state, found = Conditions(frozenset([on]), limit), RunState(), []
    for event in events:
        before, state = state, apply(state, event)
        if reason := met(conditions, before, state, event):
            found.append(reason)
    return found


def _stop(conditions: Conditions, begun: Event, event: Event, chosen: str = "") -> str | None:
    """Reason for a stop at the first event after the start of a run; None if nothing stops it."""
    before = apply(RunState(chosen=chosen), begun)
    return met(conditions, before, apply(before, event), event)


def _round(number: int, accepted: Iterable[int] = (1, 3), **changes: Any) -> Round:
    return structs.replace(tree_round(number), accepted=list(accepted), **changes)


def _begun(**parameters: Any) -> Event:
    begun = run()
    begun.methods["dynatree"].update(parameters)
    return begun


def _begun_with(methods: Iterable[str] = ("dynatree", "ar"), **changes: Any) -> Event:
    return structs.replace(run(methods), **changes)


def _race(*texts: tuple[str, list[int]]) -> list[Event]:
    numbers: dict[str, int] = {}
    events: list[Event] = [run(), Start(method="ar", prefill_s=0.1)]
    for method, tokens in texts:
        number = numbers.setdefault(method, 0)
        numbers[method] += 1
        events.append(structs.replace(plain_round(method, number), committed=tokens))
    return events


def _turned(method: str, new: float) -> Event:
    return Knob(method=method, round=2, name="n_max", old=6, new=new, source="user")


def _hf(*turns: Event, temperature: float) -> list[Event]:
    """A difference from ar, with hf as the watched method."""
    differing = structs.replace(plain_round("hf", 0), committed=[99], draft_forwards=None)
    return [_begun_with(("hf", "ar"), temperature=temperature), *turns, differing, plain_round("ar", 0)]


BARE = structs.replace(plain_round("dynatree", 0), knobs=tree_round(0).knobs)
"""A round that drafted nothing."""
DEPTHS = enumerate([6.4, 6.6, 7.0, 6.5, 6.4, 1.6, 1.4, 1.0])
ACCEPTED = enumerate([(1, 3), (1, 3), (1, 3), (), (), (), (1, 3), (1, 3), (), ()])
DIFFERING = _race(("dynatree", [1]), ("ar", [9]))
WINDOW_OF_TOKENS = _begun_with(methods={"dynatree": {"sinks": 4, "window": 1020, "k": 5}, "ar": {}})
AHEAD = [("dynatree", [1, 2, 3]), ("ar", [1]), ("ar", [2]), ("ar", [9]), ("dynatree", [4]), ("ar", [8])]
BEHIND = [("ar", [1]), ("ar", [2]), ("dynatree", [1, 2, 3]), ("ar", [3]), ("ar", [4]), ("dynatree", [5])]
CASES: dict[str, tuple[Break, list[Event], list[str]]] = {
    "a round of which nothing was accepted": (
        "rejected",
        [run(), _round(0), _round(1, ()), plain_round("ar", 0), _round(2, ())],
        ["all 5 drafted tokens rejected, round 2", "all 5 drafted tokens rejected, round 3"],
    ),
    "a round that drafted nothing rejected nothing": ("rejected", [run(), BARE], []),
    "a full tree by the bound that is in force": (
        "full",
        [_begun(n_max=6), _round(0), _turned("dynatree", 5), _round(1)],
        ["the tree is full with 5 nodes, round 2"],
    ),
    "no tree is full where there is no number of nodes": ("full", [_begun(n_max=None), _round(0)], []),
    "another method's bound is not the watched one's": ("full", [_begun(n_max=6), _turned("fixed", 5), _round(0)], []),
    "D0 arrives at a bound and stays there": (
        "bound",
        [run(), *(tree_round(number, d0=d0) for number, d0 in DEPTHS)],
        ["D0 reached its bound 7, round 2", "D0 reached its bound 1, round 7"],
    ),
    "D0 that begins at a bound has not arrived there": (
        "bound",
        [run(), tree_round(0, d0=7.0), tree_round(1, d0=7.0)],
        [],
    ),
    "D0 that goes from bound to bound arrives": (
        "bound",
        [_begun(d_max=3), tree_round(0, d0=1.0), tree_round(1, d0=2.0)],
        ["D0 reached its bound 2, round 2"],
    ),
    # Tree depth 3, window 3 rounds: the means are 2/3, 4/9, 2/9, 0, 2/9, 4/9, 2/9.
    "acceptance whose mean over the window falls under the limit": (
        "under",
        [run(), *(_round(number, nodes) for number, nodes in ACCEPTED)],
        [f"depth acceptance 0.22, the mean of 3 rounds, is under 0.3, round {number}" for number in (5, 10)],
    ),
    "acceptance is judged as soon as the window is full": (
        "under",
        [run(), *(_round(number, ()) for number in range(5))],
        ["depth acceptance 0.00, the mean of 3 rounds, is under 0.3, round 3"],
    ),
    "a difference from ar is told once by the event that shows it": (
        "difference",
        _race(*AHEAD),
        ["dynatree differs from ar at token 2, round 3 of ar"],
    ),
    "whoever is ahead": ("difference", _race(*BEHIND), ["dynatree differs from ar at token 3, round 2"]),
    "equal texts of which one is longer do not differ": (
        "difference",
        _race(("dynatree", [1, 2, 3]), ("ar", [1]), ("fixed", [7]), ("ar", [2]), ("dynatree", [4])),
        [],
    ),
    "a new run begins anew": (
        "difference",
        [*DIFFERING, *DIFFERING],
        ["dynatree differs from ar at token 0, round 1 of ar"] * 2,
    ),
    "hf that draws nothing": (
        "difference",
        _hf(temperature=0.0),
        ["hf differs from ar at token 0, round 1 of ar"],
    ),
    "hf that draws alone": ("difference", _hf(temperature=0.6), []),
    "hf that begins to draw": ("difference", _hf(turned_temperature("ar", 0, 0.0, 0.6), temperature=0.0), []),
    "hf that has drawn": ("difference", _hf(turned_temperature("ar", 0, 0.6, 0.0), temperature=0.6), []),
    "methods that draw alike": (
        "difference",
        [
            *(_begun_with(temperature=0.6), turned_temperature("dynatree", 0, 0.6, 0.8), _round(0)),
            structs.replace(plain_round("ar", 0), committed=[99]),
        ],
        ["dynatree differs from ar at token 0, round 1 of ar"],
    ),
    **{
        f"without another text of ar: {methods}": (
            "difference",
            [run(methods), *(structs.replace(plain_round(name, 0), committed=[ord(name[0])]) for name in methods)],
            [],
        )
        for methods in (("ar", "dynatree"), ("dynatree", "linear"))
    },
    **{f"an end, {name}": (name, [run(), End(method="dynatree", reason="length")], []) for name in BREAKS},
}


@pytest.mark.parametrize(("on", "events", "stops"), CASES.values(), ids=CASES)
def test_a_condition_stops_at_the_first_event_that_meets_it(on: Break, events: list[Event], stops: list[str]) -> None:
    assert _stops(on, events) == stops


def test_every_condition_has_a_label_and_an_explanation_and_is_toggled() -> None:
    assert set(LABELS) == set(EXPLANATIONS) == set(BREAKS)
    assert Conditions(limit=0.25).label("under") == "depth acceptance under 0.25 in the last rounds"
    assert Conditions().label("full") == "tree full"
    once = Conditions().toggled("full")
    assert (once.on, once.toggled("full").on) == (frozenset({"full"}), frozenset())
    assert _stop(Conditions(), run(), _round(0, accepted=())) is None


def test_neither_rounds_without_a_draft_nor_a_window_of_tokens_change_the_acceptance() -> None:
    rounds = [_round(number) for number in range(3)]
    assert _stops("under", [run(), *rounds, BARE, BARE, BARE, BARE], limit=0.6) == []
    assert len(_stops("under", [WINDOW_OF_TOKENS, *(_round(number, ()) for number in range(50))])) == 1


def test_another_method_is_judged_once_it_is_watched() -> None:
    begun = run(("dynatree", "auto"))
    event = structs.replace(_round(0), method="auto", accepted=[], committed=[7])
    found = [_stop(Conditions(frozenset({"rejected"})), begun, event, name) for name in ("", "auto")]
    assert found == [None, "all 5 drafted tokens rejected, round 1"]


def test_several_reasons_are_told_together() -> None:
    found = _stop(Conditions(frozenset(["rejected", "full"])), _begun(n_max=5), _round(3, ()))
    assert found == "all 5 drafted tokens rejected; the tree is full with 5 nodes, round 4"


@pytest.mark.parametrize("absurd", ["x", None, float("inf"), -3, True, [1]])
def test_absurd_parameters_of_a_run_are_no_fault(absurd: Any) -> None:
    events = [_begun(n_max=absurd, d_max=absurd, window=absurd), *(_round(number, ()) for number in range(3))]
    for name in BREAKS:
        assert len(_stops(name, events)) <= 3
