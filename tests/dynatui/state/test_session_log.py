"""The session's log: a bounded number of settings, those with the most rounds, and one result per prompt."""

from collections.abc import Iterable

import pytest

from decoder.prompts.prompt import with_category
from dynatui.state import session_log
from dynatui.state.run_state import Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import run, tree_round
from tests.dynatui.turned_runs import turned

MOST = session_log._MOST_SETTINGS
FULL = {n_max: 1 + n_max % 3 for n_max in range(1, MOST + 1)}
THREES, TWOS = (dict.fromkeys(FULL, rounds) for rounds in (3, 2))


def log_of(records: Iterable[Record]) -> SessionLog:
    state, log = RunState(), SessionLog()
    for record in records:
        state = apply(state, record)
        log = log.apply(record, state)
    return log


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        ([*FULL.items()], FULL),
        ([*(THREES | {20: 1}).items(), (500, 2)], {n_max: 3 for n_max in THREES if n_max != 20} | {500: 2}),
        ([*TWOS.items(), (500, 1)], {n_max: 2 for n_max in TWOS if n_max != 1} | {500: 1}),
        ([*TWOS.items(), (7, 3)], TWOS | {7: 5}),
    ],
    ids=["room for all", "the fewest rounds leave", "a new one does not leave", "one that comes back is counted on"],
)
def test_the_settings_with_the_most_rounds_are_kept(rounds: list[tuple[int, int]], kept: dict[int, int]) -> None:
    records: list[Record] = [run()]
    number = 0
    for n_max, count in rounds:
        records += [turned("n_max", number, 0, n_max), *map(tree_round, range(number, number + count))]
        number += count
    found = log_of(records).tried
    assert {round(dict(setting.knobs)["n_max"]): tried.rounds for setting, tried in found.items()} == kept


def test_values_passed_on_the_way_to_another_are_no_settings_that_were_tried() -> None:
    records: list[Record] = [run(), *map(tree_round, range(20))]
    records += [turned("n_max", 20, 0, 8), tree_round(20), turned("n_max", 21, 0, 9), tree_round(21)]
    further: list[Record] = [turned("n_max", 22, 0, 10), tree_round(22)]
    before, after = (log_of(records + more).settings_tried() for more in (list[Record](), further))
    assert before
    assert after
    n_max = [[dict(row.setting.knobs)["n_max"] for row in tried.rows] for tried in (before, after)]
    assert n_max == [[n_max[0][0], 9], [n_max[0][0], 10]]


def test_a_prompt_that_failed_before_its_run_has_no_result_of_another() -> None:
    log = log_of([Prompt(1, 3), run(), tree_round(0), Prompt(2, 3), Prompt(3, 3), run(), tree_round(0)])
    assert list(log.results) == [1]
    assert [line.number for line in log.all_runs()] == [3]


def test_a_category_stands_before_the_opening_of_a_prompt() -> None:
    assert session_log.opening_of(with_category("Once\nupon", "tale")) == "[tale] Once upon"
    assert session_log.opening_of("Once") == "Once"
    assert "\x1b" not in session_log.opening_of(with_category("Once", "\x1b[2J"))
