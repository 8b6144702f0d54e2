"""Energy is counted where one method alone decodes, and nowhere else."""

from collections.abc import Iterable, Sequence

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Energy, Event, Round, Start, Summary
from dynatui.sources.energy import metered
from tests.dynatui.scripted_runs import plain_round, run

ALONE = [("ar", 0.5)] * 7
"""Methods and decode times of rounds, which follow one another without a break."""


def rounds(*turns: tuple[str, float], rest_s: float = 0.0) -> list[Event]:
    """A run with these rounds, each of two tokens, and each after `rest_s` seconds in which nothing was decoded."""
    methods = tuple(dict.fromkeys(method for method, _ in turns))
    told: list[Event] = [
        structs.replace(run(methods), device="cuda"),
        *(Start(method=name, prefill_s=0.0) for name in methods),
    ]
    decoded = dict.fromkeys(methods, 0.0)
    wall_s = 0.0
    for number, (method, seconds) in enumerate(turns):
        decoded[method] += seconds
        wall_s += rest_s + seconds
        event = plain_round(method, number)
        told.append(structs.replace(event, t=decoded[method], wall_s=wall_s, committed=[1, 2]))
    figures = fold(told).figures()
    return [*told, *(End(method=name, reason="length") for name in methods), Summary(methods=figures)]


class Counter:
    """Joules at each reading, ten more at each."""

    def __init__(self, joules: Iterable[float | None] = ()) -> None:
        self.devices: list[Sequence[str]] = []
        self.readings = 0
        self._joules = list(joules)

    def open(self, devices: Sequence[str]) -> "Counter":
        self.devices.append(devices)
        return self

    def __call__(self) -> float | None:
        self.readings += 1
        return self._joules[self.readings - 1] if self._joules else 10.0 * self.readings


def energies(events: Iterable[Event], counter: Counter | None = None) -> list[Energy]:
    told = metered(events, (counter or Counter()).open)
    return [event.energy for event in told if isinstance(event, Round) and event.energy]


def test_a_stretch_of_a_second_has_what_the_counter_says_and_the_tokens_since_the_reading_before() -> None:
    counter = Counter()
    assert energies(rounds(*ALONE), counter) == [Energy(10.0, 4)] * 3
    assert counter.devices == [["cuda"]]
    assert counter.readings == 4


def test_figures_of_a_run_and_of_its_summary_are_joules_over_these_tokens() -> None:
    events = list(metered(rounds(*ALONE), Counter().open))
    assert fold(events).figures()["ar"].joules_per_token == 2.5
    assert isinstance(events[-1], Summary)
    assert events[-1].methods["ar"].joules_per_token == 2.5


@pytest.mark.parametrize(
    "events",
    [
        rounds(*[("ar", 0.5), ("linear", 0.5)] * 6),
        rounds(*ALONE, rest_s=0.2),
        rounds(("ar", 0.3), ("ar", 0.3), ("ar", 0.3)),
        rounds(("linear", 0.5), ("linear", 0.5), ("ar", 0.1), ("linear", 0.5)),
    ],
    ids=["methods in turn", "pauses between rounds", "less than a second", "a short round of another"],
)
def test_where_a_method_does_not_decode_alone_nothing_is_counted(events: list[Event]) -> None:
    assert energies(events) == []
    summary = list(metered(events, Counter().open))[-1]
    assert isinstance(summary, Summary)
    assert {entry.joules_per_token for entry in summary.methods.values()} == {None}


def test_the_last_of_a_race_is_counted_once_the_others_have_ended() -> None:
    race = rounds(*[("ar", 0.5), ("linear", 0.5)] * 3, *[("linear", 0.5)] * 6)
    assert energies(race) == [Energy(10.0, 4)] * 2


def test_a_prompt_that_is_read_between_two_rounds_ends_the_stretch() -> None:
    events = rounds(*ALONE)
    events.insert(4, Start(method="linear", prefill_s=0.1))
    assert len(energies(events)) == 2


@pytest.mark.parametrize("joules", [[None] * 9, [50.0, None, 70.0, None], [50.0, 40.0, 30.0, 20.0]])
def test_without_a_counter_or_where_it_begins_anew_energy_is_absent_and_not_zero(joules: list[float | None]) -> None:
    assert energies(rounds(*ALONE), Counter(joules)) == []
    assert fold(metered(rounds(*ALONE), Counter(joules).open)).figures()["ar"].joules_per_token is None


def test_all_other_events_pass_as_they_are() -> None:
    events = rounds(*ALONE)
    plain = [
        structs.replace(event, energy=None) if isinstance(event, Round) else event
        for event in metered(events, Counter().open)
    ]
    assert plain[:-1] == events[:-1]
