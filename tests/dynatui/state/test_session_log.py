"""Tests of the session's log: a bounded number of settings, those with the most rounds, and one result per prompt."""

from collections.abc import Iterable, Sequence

from decoder.events import Event, Knob
from decoder.prompts.prompt import with_category
from dynatui.state import session_log
from dynatui.state.run_state import Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import run, tree_round

MOST = session_log._MOST_SETTINGS


def told(rounds: Iterable[tuple[int, int]]) -> list[Event]:
    events: list[Event] = [run()]
    number = 0
    for n_max, count in rounds:
        events.append(Knob(method="dynatree", round=number, name="n_max", old=0, new=n_max, source="user"))
        events += [tree_round(number + step) for step in range(count)]
        number += count
    return events


def tried(events: Sequence[Event]) -> dict[int, int]:
    state, log = RunState(), SessionLog()
    for event in events:
        state = apply(state, event)
        log = log.apply(event, state)
    return {round(dict(setting.knobs)["n_max"]): found.rounds for setting, found in log.tried.items()}


def test_as_many_settings_are_kept_as_there_is_room_for() -> None:
    rounds = [(n_max, 1 + n_max % 3) for n_max in range(1, MOST + 1)]
    assert tried(told(rounds)) == dict(rounds)


def test_the_setting_with_the_fewest_rounds_makes_room_for_a_new_one() -> None:
    before = dict.fromkeys(range(1, MOST + 1), 3)
    kept = {n_max: rounds for n_max, rounds in before.items() if n_max != 20}
    assert tried(told([*(before | {20: 1}).items(), (500, 2)])) == kept | {500: 2}


def test_a_new_setting_is_not_the_one_that_leaves() -> None:
    before = dict.fromkeys(range(1, MOST + 1), 2)
    found = tried(told([*before.items(), (500, 1)]))
    assert found[500] == 1
    assert set(before) - set(found) == {1}


def test_a_setting_that_comes_back_is_counted_on_and_makes_nothing_leave() -> None:
    rounds = [(n_max, 2) for n_max in range(1, MOST + 1)]
    assert tried(told([*rounds, (7, 3)])) == dict(rounds) | {7: 5}


def test_a_prompt_that_failed_before_its_run_has_no_result_of_another() -> None:
    records: list[Record] = [Prompt(1, 3), run(), tree_round(0), Prompt(2, 3), Prompt(3, 3), run(), tree_round(0)]
    state, log = RunState(), SessionLog()
    for record in records:
        state = apply(state, record)
        log = log.apply(record, state)
    assert list(log.results) == [1]
    assert [line.number for line in log.all_runs()] == [3]


def test_a_category_stands_before_the_opening_of_a_prompt() -> None:
    assert session_log.opening_of(with_category("Once\nupon", "tale")) == "[tale] Once upon"
    assert session_log.opening_of("Once") == "Once"
    assert "\x1b" not in session_log.opening_of(with_category("Once", "\x1b[2J"))
