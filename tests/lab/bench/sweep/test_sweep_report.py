"""Grids of settings, and logs of a folder as maps and tables."""

import re
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from decoder.errors import ConfigError
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.tree_rules import Rules
from dynatui.lab.bench.sweep.report import SettingState, SweepReport, cell, heat_maps, legend, on_sweep, read
from dynatui.lab.bench.sweep.spaces import SPACES, GridPoint, Shard, SweepRequest, axes_with, axis_values, base_named
from dynatui.lab.tables.data import WIDTH
from tests.lab.bench.makers import MACHINE
from tests.lab.bench.sweep.sweeps import AXES, SMALL, done, logged, outcome, report, request

GAPS = request(space="thresholds", axes={"tau_h": (0.4, 0.9), "tau_l": (0.3, 0.5), "T": (9,)})


def settled(found: SweepReport) -> int:
    return sum(trial.state != "waiting" for trial in found.trials)


def test_the_report_of_a_folder_has_every_setting_in_the_order_of_the_grid(tmp_path: Path) -> None:
    one, two, three, *_ = SMALL.settings
    logged(tmp_path, SMALL, {one.key: outcome(2.0), two.key: "its text differs"})
    found = read(tmp_path)
    states = {trial.setting.key: trial for trial in found.trials}
    assert list(states) == [setting.key for setting in SMALL.settings]
    assert states[one.key].outcome == outcome(2.0)
    assert (states[two.key].state, states[two.key].reason) == ("refused", "its text differs")
    assert states[three.key].state == "waiting"
    assert found.machines == {"sweep-1-of-1": MACHINE}
    assert msgspec.json.decode(msgspec.json.encode(found), type=SweepReport) == found


def test_shards_divide_the_grid_and_are_shown_together(tmp_path: Path) -> None:
    shards = [Shard(number, 3) for number in (1, 2, 3)]
    parts = [[setting.key for setting in shard.of(SMALL.settings, SMALL.seed)] for shard in shards]
    assert sorted(chain(*parts)) == sorted(setting.key for setting in SMALL.settings)
    for shard, part in zip(shards[:2], parts, strict=False):
        logged(tmp_path, SMALL, dict.fromkeys(part, outcome(2.0)), shard)
    assert settled(read(tmp_path)) == len(parts[0]) + len(parts[1])
    assert list(read(tmp_path).machines) == ["sweep-1-of-3", "sweep-2-of-3"]


def test_logs_of_different_sweeps_are_not_shown_together(tmp_path: Path) -> None:
    logged(tmp_path, SMALL, {}, Shard(1, 2))
    logged(tmp_path, request(repeats=2, axes=AXES | {"T": (9,)}), {}, Shard(2, 2))
    with pytest.raises(ConfigError, match=r"is of another sweep, with other values of axes, repeats; move"):
        read(tmp_path)


def test_a_line_that_another_process_is_writing_is_left_out(tmp_path: Path) -> None:
    path = logged(tmp_path, SMALL, {SMALL.settings[0].key: outcome(2.0)})
    with path.open("ab") as file:
        file.write(b'{"type":"setting","key":"D=')
    before = path.read_bytes()
    assert settled(read(tmp_path)) == 1
    assert path.read_bytes() == before


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no sweep; run a sweep first"):
        read(tmp_path)
    (tmp_path / "sweep-1-of-1.jsonl").write_bytes(b"Dear reader\n")
    with pytest.raises(ConfigError, match="is no log of a sweep: "):
        read(tmp_path)


def test_a_map_has_the_best_of_the_axes_that_it_does_not_show() -> None:
    found = heat_maps(report([done(0, 1.2), done(2, 1.5), done(1, 9.0)]))
    assert [each.title for each in found] == ["T=100, B across", "T=200, B across"]
    assert [column.title for column in found[0].columns] == ["D", "2", "3"]
    assert found[0].rows[0] == ("3", "1.50", ".")
    assert found[1].rows[0] == ("3", "9.00*", ".")
    assert legend(report())[1:] == ["each cell shows the best setting among all values of tau"]


def test_settings_that_are_not_possible_are_no_settings_and_leave_gaps() -> None:
    assert [setting.key for setting in GAPS.settings] == [
        f"tau_h={high} tau_l={low} T=9" for high, low in ((0.4, 0.3), (0.9, 0.3), (0.9, 0.5))
    ]
    (found,) = heat_maps(report(question=GAPS))
    assert [row[1:] for row in found.rows] == [(".", ""), (".", ".")]
    assert legend(report(question=GAPS))[1:] == []


def test_every_state_of_a_cell_has_a_text_of_its_own() -> None:
    fast, waiting = done(0, 1.234), SettingState(setting=SMALL.settings[1], state="waiting")
    refused = SettingState(setting=SMALL.settings[1], state="refused")
    for trials, best, text in (
        ([fast, waiting], [], "1.23"),
        ([fast], [fast], "1.23*"),
        ([waiting, refused], [], "."),
        ([refused], [], "!"),
        ([], [], ""),
    ):
        assert cell(trials, best) == text


def test_the_best_ten_stand_below_the_maps_the_fastest_first_with_what_they_must_be_read_with() -> None:
    text = on_sweep(report([done(number, 1 + number / 10) for number in range(12)]))
    lines = [line for line in text.splitlines() if line.startswith("D=")]
    assert len(lines) == 10
    assert [re.findall(r" (\d\.\d\d) \d", line)[0] for line in lines[:2]] == ["2.10", "2.00"]
    assert "12 of 16 settings of fixed are finished; results" in text
    assert "sweep-1-of-1: a processor, 2 cores" in text
    assert "the best of many settings seems faster than it is" in text
    assert "disturbed" not in text
    doubtful = SettingState(setting=SMALL.settings[0], state="done", outcome=outcome(1.5, disturbed=3, near_ties=2))
    text = on_sweep(report([doubtful, done(1, 1.4)]))
    assert "3 turns were disturbed by other processes" in text
    assert "2 texts differ from the text of ar by a near tie" in text


def test_what_has_no_speed_is_named_with_the_reason() -> None:
    refused = [SettingState(setting=each, state="refused", reason="its text differs") for each in SMALL.settings[:7]]
    text = on_sweep(report(refused))
    assert text.count(": its text differs") == 5
    assert "and 2 more" in text
    assert "L-bar" not in text


@pytest.mark.parametrize("question", [request(axes=AXES | {"T": (100, 200, 300, 500, 1000)}), SMALL])
def test_a_report_is_at_most_80_columns_wide(question: SweepRequest) -> None:
    text = on_sweep(report([done(number, 1.5, question) for number in range(len(question.settings))], question))
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", SPACES)
def test_every_setting_of_every_space_can_be_decoded(name: str) -> None:
    space = SPACES[name]
    for preset in space.presets or (None,):
        base = base_named(space, preset)
        for setting in space.grid(space.axes):
            assert space.config(base, setting).max_new_tokens == setting.length
    if name == "fixed":
        settings = space.grid(space.axes)
        assert len({setting.key for setting in settings}) == 450, "the paper's"
        assert {setting.length for setting in settings} == {100, 200, 300, 500, 1000}


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        (
            {"tau_h": (0.3,), "tau_l": (0.5,)},
            "no setting of these axes is possible; choose values so that tau_l is below tau_h",
        ),
        (
            {"T": tuple(range(1, 1000))},
            "the grid has 24975 settings, which are too many; give axes with 10000 settings or fewer",
        ),
        ({"B": (2,)}, "the space thresholds has no axis 'B'; choose from tau_h, tau_l, T"),
    ],
)
def test_an_impossible_grid_is_refused(axes: dict[str, tuple[float, ...]], line: str) -> None:
    space = SPACES["thresholds"]
    with pytest.raises(ConfigError) as caught:
        space.grid(axes_with(space, axes))
    assert str(caught.value) == line


def test_an_axis_reads_its_kind_of_numbers_once_each_and_no_repeats_are_refused() -> None:
    assert axis_values(SPACES["fixed"], "tau", ".1,0.10, 1") == (0.1, 1.0)
    assert axis_values(SPACES["fixed"], "D", "3, 4,3") == (3, 4)
    with pytest.raises(ConfigError, match=r"the axis D is '3\.5', which is invalid; give whole numbers with commas"):
        axis_values(SPACES["fixed"], "D", "3.5")
    with pytest.raises(ConfigError, match="the axis tau is '', which is invalid; give numbers"):
        axis_values(SPACES["fixed"], "tau", "")
    with pytest.raises(ConfigError, match="--repeats is 0; give 1 or more"):
        request(repeats=0)


@pytest.mark.parametrize(
    ("name", "values", "rules"),
    [
        ("thresholds", {"tau_h": 0.7, "tau_l": 0.2}, DynaTree(tau_h=0.7, tau_l=0.2)),
        ("breadth", {"b_min": 1, "b_max": 3}, DynaTree(branching=(1, 2, 3))),
        ("breadth", {"b_min": 3, "b_max": 5}, DynaTree(branching=(3, 3, 5))),
        ("breadth", {"b_min": 1, "b_max": 1}, DynaTree(branching=(1, 1, 1))),
        ("fixed", {"D": 8, "B": 3, "tau": 0.1}, Fixed(8, 3, 0.1)),
    ],
)
def test_a_setting_changes_its_axes_alone(name: str, values: dict[str, float], rules: Rules) -> None:
    space, setting = SPACES[name], GridPoint({**values, "T": 9})
    base = base_named(space, None)
    assert space.config(base, setting).rules(space.method) == rules
    assert space.plain_config(base, setting).rules(space.method) == base
