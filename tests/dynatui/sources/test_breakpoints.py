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


def _events(*events: Event) -> list[Event]:
    return list(events)


def _round(number: int, accepted: Iterable[int] = (1, 3), **changes: Any) -> Round:
    return structs.replace(tree_round(number), accepted=list(accepted), **changes)


def _begun(**parameters: Any) -> Event:
    begun = run()
    begun.methods["dynatree"].update(parameters)
    return begun


def test_every_condition_has_a_label_and_an_explanation() -> None:
    assert set(LABELS) == set(EXPLANATIONS) == set(BREAKS)
    assert Conditions(limit=0.25).label("under") == "depth acceptance under 0.25 in the last rounds"
    assert Conditions().label("full") == "tree full"


def test_a_condition_is_toggled() -> None:
    once = Conditions().toggled("full")
    assert once.on == {"full"}
    assert once.toggled("full").on == frozenset()


def test_nothing_stops_while_no_condition_is_on() -> None:
    assert _stop(Conditions(), run(), _round(0, accepted=())) is None


def test_a_round_of_which_nothing_was_accepted() -> None:
    events = _events(run(), _round(0), _round(1, accepted=()), plain_round("ar", 0), _round(2, accepted=()))
    assert _stops("rejected", events) == [
        "all 5 drafted tokens rejected, round 2",
        "all 5 drafted tokens rejected, round 3",
    ]


def test_rounds_without_a_draft_leave_the_acceptance_of_the_others_where_it_was() -> None:
    alone = structs.replace(plain_round("dynatree", 0), knobs=tree_round(0).knobs)
    rounds = [_round(number) for number in range(3)]
    assert _stops("under", [run(), *rounds, alone, alone, alone, alone], limit=0.6) == []


def test_a_round_that_drafted_nothing_rejected_nothing() -> None:
    bare = structs.replace(plain_round("dynatree", 0), accepted=[])
    assert _stops("rejected", [run(), bare]) == []


def test_a_full_tree_by_the_bound_that_is_in_force() -> None:
    turned = Knob(method="dynatree", round=2, name="n_max", old=6, new=5, source="user")
    events = _events(_begun(n_max=6), _round(0), turned, _round(1))
    assert _stops("full", events) == ["the tree is full with 5 nodes, round 2"]


def test_no_tree_is_full_where_there_is_no_number_of_nodes() -> None:
    assert _stops("full", _events(_begun(n_max=None), _round(0))) == []


def test_another_method_is_judged_once_it_is_watched() -> None:
    begun = run(("dynatree", "auto"))
    event = structs.replace(_round(0), method="auto", accepted=[], committed=[7])
    found = [_stop(Conditions(frozenset({"rejected"})), begun, event, name) for name in ("", "auto")]
    assert found == [None, "all 5 drafted tokens rejected, round 1"]


def test_another_methods_bound_is_not_the_watched_ones() -> None:
    turned = Knob(method="fixed", round=2, name="n_max", old=6, new=5, source="user")
    assert _stops("full", [_begun(n_max=6), turned, _round(0)]) == []


def test_d0_stops_when_it_arrives_at_a_bound_and_not_while_it_stays_there() -> None:
    depths = [6.4, 6.6, 7.0, 6.5, 6.4, 1.6, 1.4, 1.0]
    events = _events(run(), *(tree_round(number, d0=d0) for number, d0 in enumerate(depths)))
    assert _stops("bound", events) == ["D0 reached its bound 7, round 2", "D0 reached its bound 1, round 7"]


def test_d0_that_begins_at_a_bound_has_not_arrived_there() -> None:
    assert _stops("bound", [run(), tree_round(0, d0=7.0), tree_round(1, d0=7.0)]) == []


def test_d0_that_goes_from_bound_to_bound_arrives() -> None:
    events = _events(_begun(d_max=3), tree_round(0, d0=1.0), tree_round(1, d0=2.0))
    assert _stops("bound", events) == ["D0 reached its bound 2, round 2"]


def test_acceptance_stops_where_its_mean_over_the_window_falls_under_the_limit() -> None:
    # Tree depth 3, window 3 rounds: the means are 2/3, 4/9, 2/9, 0, 2/9, 4/9, 2/9.
    accepted = [(1, 3), (1, 3), (1, 3), (), (), (), (1, 3), (1, 3), (), ()]
    events = _events(run(), *(_round(number, nodes) for number, nodes in enumerate(accepted)))
    assert _stops("under", events, limit=0.4) == [
        "depth acceptance 0.22, the mean of 3 rounds, is under 0.4, round 5",
        "depth acceptance 0.22, the mean of 3 rounds, is under 0.4, round 10",
    ]


def test_acceptance_is_not_judged_before_the_window_is_full_but_at_once_then() -> None:
    events = _events(run(), *(_round(number, ()) for number in range(5)))
    assert _stops("under", events) == ["depth acceptance 0.00, the mean of 3 rounds, is under 0.3, round 3"]


def test_a_window_of_tokens_is_none_of_rounds() -> None:
    begun = run()
    begun.methods["dynatree"] = {"sinks": 4, "window": 1020, "k": 5}
    events = _events(begun, *(_round(number, ()) for number in range(50)))
    assert len(_stops("under", events)) == 1


def _race(*texts: tuple[str, list[int]]) -> list[Event]:
    numbers: dict[str, int] = {}
    events: list[Event] = [run(), Start(method="ar", prefill_s=0.1)]
    for method, tokens in texts:
        number = numbers.setdefault(method, 0)
        numbers[method] += 1
        events.append(structs.replace(plain_round(method, number), committed=tokens))
    return events


def test_the_first_difference_from_ar_is_told_once_by_the_event_that_shows_it() -> None:
    race = _race(("dynatree", [1, 2, 3]), ("ar", [1]), ("ar", [2]), ("ar", [9]), ("dynatree", [4]), ("ar", [8]))
    assert _stops("difference", race) == ["dynatree differs from ar at token 2, round 3 of ar"]


def test_a_difference_is_seen_whoever_is_ahead() -> None:
    race = _race(("ar", [1]), ("ar", [2]), ("dynatree", [1, 2, 3]), ("ar", [3]), ("ar", [4]), ("dynatree", [5]))
    assert _stops("difference", race) == ["dynatree differs from ar at token 3, round 2"]


def test_equal_texts_of_which_one_is_longer_do_not_differ() -> None:
    race = _race(("dynatree", [1, 2, 3]), ("ar", [1]), ("fixed", [7]), ("ar", [2]), ("dynatree", [4]))
    assert _stops("difference", race) == []


@pytest.mark.parametrize("methods", [("ar", "dynatree"), ("dynatree", "linear")])
def test_without_another_text_of_ar_nothing_can_differ(methods: tuple[str, str]) -> None:
    events = _events(
        run(methods), *(structs.replace(plain_round(name, 0), committed=[ord(name[0])]) for name in methods)
    )
    assert _stops("difference", events) == []


def test_a_new_run_begins_anew() -> None:
    race = _race(("dynatree", [1]), ("ar", [9]))
    assert len(_stops("difference", [*race, *race])) == 2


def test_several_reasons_are_told_together() -> None:
    both = Conditions(frozenset(["rejected", "full"]))
    assert (
        _stop(both, _begun(n_max=5), _round(3, ()))
        == "all 5 drafted tokens rejected; the tree is full with 5 nodes, round 4"
    )


def test_other_events_never_stop() -> None:
    end = End(method="dynatree", reason="length")
    assert all(_stops(name, [run(), end]) == [] for name in BREAKS)


@pytest.mark.parametrize("absurd", ["x", None, float("inf"), -3, True, [1]])
def test_absurd_parameters_of_a_run_are_no_fault(absurd: Any) -> None:
    events = _events(_begun(n_max=absurd, d_max=absurd, window=absurd), *(_round(number, ()) for number in range(3)))
    for name in BREAKS:
        assert len(_stops(name, events)) <= 3


def _hf(*turns: Event, temperature: float) -> list[str]:
    """Reasons for stops at a difference from ar, with hf as the watched method."""
    begins = structs.replace(run(("hf", "ar")), temperature=temperature)
    differing = structs.replace(plain_round("hf", 0), committed=[99], draft_forwards=None)
    return _stops("difference", [begins, *turns, differing, plain_round("ar", 0)])


def test_hf_that_draws_alone_is_not_stopped_at_a_difference() -> None:
    assert _hf(temperature=0.0) == ["hf differs from ar at token 0, round 1 of ar"]
    assert _hf(temperature=0.6) == []
    assert _hf(turned_temperature("ar", 0, 0.0, 0.6), temperature=0.0) == []
    assert _hf(turned_temperature("ar", 0, 0.6, 0.0), temperature=0.6) == []


def test_methods_that_draw_alike_are_stopped_at_a_difference() -> None:
    begins = structs.replace(run(), temperature=0.6)
    turned = turned_temperature("dynatree", 0, 0.6, 0.8)
    stops = _stops("difference", [begins, turned, _round(0), structs.replace(plain_round("ar", 0), committed=[99])])
    assert stops == ["dynatree differs from ar at token 0, round 1 of ar"]
