"""Contents of a database as maps and tables."""

import re
from collections.abc import Sequence

import msgspec
import pytest

from dynatui.lab.bench.sweep.heat_map import Cell, extremes, heat_maps, legend
from dynatui.lab.bench.sweep.outcome import Refused
from dynatui.lab.bench.sweep.report import SweepReport, Trial, read
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.table import on_sweep
from dynatui.lab.bench.sweep.trials import claimed, kept, noted
from dynatui.lab.tables.text import WIDTH
from tests.lab.bench.sweep.sweeps import outcome, request, sqlite_in, sweep_in

SMALL = request(axes={"D": (3, 4), "B": (2, 3), "tau": (0.01, 0.05), "T": (100, 200)})


def report(trials: Sequence[Trial] = (), question: SweepRequest = SMALL) -> SweepReport:
    """A report of these trials; all other settings are waiting."""
    known = {trial.setting.key: trial for trial in trials}
    return SweepReport(
        study="fixed-0123",
        storage="sqlite:////tmp/sweeps.db",
        request=question,
        machines={"box": {"processor": "Quick", "cores": 2, "accelerator": None}},
        trials=tuple(known.get(each.key, Trial(setting=each, state="waiting")) for each in question.settings),
    )


def done(number: int, speed: float, question: SweepRequest = SMALL) -> Trial:
    return Trial(setting=question.settings[number], state="done", outcome=outcome(speed))


def row(cells: Sequence[Cell]) -> list[str]:
    return [cell.text for cell in cells]


def test_the_report_of_a_database_has_every_setting_in_the_order_of_the_grid(database: str) -> None:
    sweep = sweep_in(database, SMALL)
    noted(sweep, {"processor": "Quick"})
    one, two, three = claimed(sweep), claimed(sweep), claimed(sweep)
    assert one
    assert two
    assert three
    kept(sweep, one, outcome(2.0))
    kept(sweep, two, Refused(reason="its text differs"))
    found = read(sweep)
    states = {trial.setting.key: trial for trial in found.trials}
    assert list(states) == [setting.key for setting in SMALL.settings]
    assert states[one.setting.key].outcome == outcome(2.0)
    assert (states[two.setting.key].state, states[two.setting.key].reason) == ("refused", "its text differs")
    assert states[three.setting.key].state == "running"
    assert states[three.setting.key].worker
    assert (found.settled, found.complete) == (2, False)
    assert list(found.machines.values()) == [{"processor": "Quick"}]
    assert msgspec.json.decode(msgspec.json.encode(found), type=SweepReport) == found


def test_the_share_that_is_done_counts_tokens() -> None:
    short, long = (next(i for i, each in enumerate(SMALL.settings) if each.length == n) for n in (100, 200))
    assert report([done(short, 1.0)]).share == pytest.approx(100 / 2400)
    assert report([done(long, 1.0)]).share == pytest.approx(200 / 2400)


def test_a_map_has_the_best_of_the_axes_that_it_does_not_show() -> None:
    found = heat_maps(report([done(0, 1.2), done(2, 1.5), done(1, 9.0)]))
    assert [each.title for each in found] == ["T=100", "T=200"]
    assert found[0].heads == ("2", "3")
    assert row(found[0].lines[0][1]) == ["1.50", "."]
    assert row(found[1].lines[0][1]) == ["9.00*", "."]
    assert extremes(found) == (1.5, 9.0)
    assert extremes(heat_maps(report())) is None


def test_every_state_of_a_cell_has_a_text_of_its_own() -> None:
    texts = [
        Cell(speed=1.234, best=False, running=False, waiting=True, exists=True).text,
        Cell(speed=1.234, best=True, running=False, waiting=False, exists=True).text,
        Cell(speed=1.234, best=False, running=True, waiting=False, exists=True).text,
        Cell(speed=None, best=False, running=True, waiting=True, exists=True).text,
        Cell(speed=None, best=False, running=False, waiting=True, exists=True).text,
        Cell(speed=None, best=False, running=False, waiting=False, exists=True).text,
        Cell(speed=None, best=False, running=False, waiting=False, exists=False).text,
    ]
    assert texts == ["1.23", "1.23*", "1.23+", "+", ".", "!", ""]


def test_settings_that_are_not_possible_leave_gaps() -> None:
    question = request(space="thresholds", axes={"tau_h": (0.4, 0.9), "tau_l": (0.3, 0.5), "T": (9,)})
    (found,) = heat_maps(report(question=question))
    assert [row(cells) for _, cells in found.lines] == [[".", ""], [".", "."]]


def test_the_best_ten_stand_below_the_maps_the_fastest_first() -> None:
    text = on_sweep(report([done(number, 1 + number / 10) for number in range(12)]))
    lines = [line for line in text.splitlines() if line.startswith("D=")]
    assert len(lines) == 10
    assert [re.findall(r" (\d\.\d\d) \d", line)[0] for line in lines[:2]] == ["2.10", "2.00"]
    assert "fixed-0123: 12 of 16 settings of fixed" in text
    assert "box: Quick, 2 cores" in text


def test_what_figures_must_be_read_with_is_told() -> None:
    doubtful = Trial(setting=SMALL.settings[0], state="done", outcome=outcome(1.5, disturbed=3, near_ties=2))
    text = on_sweep(report([doubtful, done(1, 1.4)]))
    assert "the best of many settings looks faster than it is" in text
    assert "3 turns were disturbed by other processes" in text
    assert "2 texts differ from the text of ar by a near tie" in text
    assert "disturbed" not in on_sweep(report([done(1, 1.4)]))


def test_a_map_says_which_axis_it_does_not_show() -> None:
    assert legend(report())[1:] == ["each cell shows the best setting among all values of tau"]
    two = request(space="thresholds", axes={"tau_h": (0.4, 0.9), "tau_l": (0.3, 0.5), "T": (9,)})
    assert legend(report(question=two))[1:] == []


def test_what_has_no_speed_is_named_with_the_reason() -> None:
    refused = [Trial(setting=each, state="refused", reason="its text differs") for each in SMALL.settings[:7]]
    text = on_sweep(report(refused))
    assert text.count(": its text differs") == 5
    assert "and 2 more" in text
    assert "L-bar" not in text


@pytest.mark.parametrize("question", [request(axes=dict(SMALL.axes) | {"T": (100, 200, 300, 500, 1000)}), SMALL])
def test_a_report_is_at_most_80_columns_wide(question: SweepRequest) -> None:
    text = on_sweep(report([done(number, 1.5, question) for number in range(len(question.settings))], question))
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_was_measured_is_there_when_the_file_is_opened_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = sqlite_in(tmp_path_factory.mktemp("again"))
    sweep = sweep_in(url, SMALL)
    claim = claimed(sweep)
    assert claim
    kept(sweep, claim, outcome(3.0))
    assert read(sweep_in(url, SMALL)) == read(sweep)
