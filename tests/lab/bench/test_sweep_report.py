"""Grids of settings, and logs of a folder as maps and tables."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.errors import ConfigError
from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.tree_rules import Rules
from dynatui.lab.bench.record_log import LogHeader, opened
from dynatui.lab.bench.spaces import SPACES, GridPoint, Shard, SweepRequest
from dynatui.lab.bench.sweep import (
    FORMAT,
    LOG_SCHEMA,
    Kept,
    Outcome,
    SettingState,
    SweepReport,
    heat_map,
    on_sweep,
    read,
)
from dynatui.lab.frame import Median
from dynatui.lab.tables import WIDTH
from tests.lab.bench.makers import MACHINE, PAIR

AXES = {"D": (3, 4), "B": (2, 3), "tau": (0.01, 0.05), "T": (100, 200)}
OTHER = "its text differs"


def request(**changes: Any) -> SweepRequest:
    given: dict[str, Any] = {
        "space": "fixed",
        "axes": AXES,
        "reference": {"depth": 5},
        "prompts": ("The tree grows",),
        "repeats": 1,
    }
    return SweepRequest(**PAIR | given | changes)


SMALL = request()
GAPS = request(space="thresholds", axes={"tau_h": (0.4, 0.9), "tau_l": (0.3, 0.5), "T": (9,)})


def outcome(speed: float = 1.5, **changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "speed": Median(value=speed, low=speed - 0.1, high=speed + 0.1),
        "over_reference": Median(value=1.0, low=None, high=None),
        "tokens_per_second": 200.0,
        "tokens_per_round": 3.0,
        "acceptance_rate": 0.5,
        "nodes_per_round": 4.0,
        "rounds": 30.0,
        "round_ms": 5.0,
        "disturbed": 0,
    }
    return Outcome(**given | changes)


def report(results: Mapping[int, Outcome | str], question: SweepRequest = SMALL) -> SweepReport:
    """A report of these results by number of the setting; a text is the reason for no speed; the others are waiting."""

    def state(number: int, setting: GridPoint) -> SettingState:
        match results.get(number):
            case None:
                return SettingState(setting=setting, state="waiting")
            case str(reason):
                return SettingState(setting=setting, state="refused", reason=reason)
            case found:
                return SettingState(setting=setting, state="done", outcome=found)

    trials = tuple(state(number, setting) for number, setting in enumerate(question.settings))
    return SweepReport(folder="results", request=question, machines={"sweep-1-of-1": MACHINE}, trials=trials)


def logged(folder: Path, question: SweepRequest, results: Sequence[Kept] = (), shard: Shard = Shard()) -> Path:  # noqa: B008 - frozen
    path = folder / f"{shard.name}.jsonl"
    with opened(path, FORMAT) as log:
        log.begin(LogHeader(schema=LOG_SCHEMA, started_at="", machine=MACHINE, request=question, costs=None))
        for result in results:
            log.add(result)
    return path


def settled(folder: Path) -> int:
    return sum(trial.state != "waiting" for trial in read(folder).trials)


def test_the_report_of_a_folder_has_every_setting_in_the_order_of_the_grid(tmp_path: Path) -> None:
    one, two = (setting.key for setting in SMALL.settings[:2])
    logged(tmp_path, SMALL, [Kept(key=two, reason=OTHER), Kept(key=one, outcome=outcome(2.0))])
    found = read(tmp_path)
    expected = report({0: outcome(2.0), 1: OTHER})
    assert (found.trials, found.machines) == (expected.trials, expected.machines)
    assert msgspec.json.decode(msgspec.json.encode(found), type=SweepReport) == found


def test_shards_divide_the_grid_and_are_shown_together(tmp_path: Path) -> None:
    shards = [Shard(number, 3) for number in (1, 2, 3)]
    parts = [[setting.key for setting in shard.of(SMALL.settings, SMALL.seed)] for shard in shards]
    assert sorted(chain(*parts)) == sorted(setting.key for setting in SMALL.settings)
    for shard, part in zip(shards[:2], parts, strict=False):
        logged(tmp_path, SMALL, [Kept(key=key, outcome=outcome(2.0)) for key in part], shard)
    assert settled(tmp_path) == len(parts[0]) + len(parts[1])
    assert list(read(tmp_path).machines) == ["sweep-1-of-3", "sweep-2-of-3"]


def test_logs_of_different_sweeps_are_not_shown_together(tmp_path: Path) -> None:
    logged(tmp_path, SMALL, shard=Shard(1, 2))
    logged(tmp_path, request(repeats=2, axes=AXES | {"T": (9,)}), shard=Shard(2, 2))
    with pytest.raises(ConfigError, match=r"is of another sweep, with other values of axes, repeats; move"):
        read(tmp_path)


def test_a_line_that_another_process_is_writing_is_left_out(tmp_path: Path) -> None:
    path = logged(tmp_path, SMALL, [Kept(key=SMALL.settings[0].key, outcome=outcome())])
    with path.open("ab") as file:
        file.write(b'{"type":"setting","key":"D=')
    before = path.read_bytes()
    assert settled(tmp_path) == 1
    assert path.read_bytes() == before


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no sweep; run a sweep first"):
        read(tmp_path)
    (tmp_path / "sweep-1-of-1.jsonl").write_bytes(b"Dear reader\n")
    with pytest.raises(ConfigError, match="holds no measurement that this version can read; set --output to another"):
        read(tmp_path)


def test_a_map_has_the_best_of_the_axes_that_it_does_not_show_and_gaps_where_no_setting_is_possible() -> None:
    found = report({0: outcome(1.234), 2: outcome(1.5), 1: outcome(9.0), 4: OTHER, 6: OTHER, 8: OTHER})
    first, second = (heat_map(found, length) for length in (100, 200))
    assert (first.title, [column.title for column in first.columns]) == ("T=100, B across", ["D", "2", "3"])
    assert (first.rows, second.rows) == (
        (("3", "1.50", "!"), ("4", ".", ".")),
        (("3", "9.00*", "."), ("4", ".", ".")),
    )
    assert "each cell shows the best setting among all values of tau" in on_sweep(found)
    assert [setting.key for setting in GAPS.settings] == [
        f"tau_h={high} tau_l={low} T=9" for high, low in ((0.4, 0.3), (0.9, 0.3), (0.9, 0.5))
    ]
    assert [row[1:] for row in heat_map(report({}, GAPS), 9).rows] == [(".", ""), (".", ".")]
    assert "each cell shows" not in on_sweep(report({}, GAPS))


def test_the_best_ten_stand_below_the_maps_the_fastest_first_with_what_they_must_be_read_with() -> None:
    text = on_sweep(report({number: outcome(1 + number / 10) for number in range(12)}))
    lines = [line for line in text.splitlines() if line.startswith("D=")]
    assert len(lines) == 10
    assert [re.findall(r" (\d\.\d\d) \d", line)[0] for line in lines[:2]] == ["2.10", "2.00"]
    for part in ("12 of 16 settings of fixed are finished; results", "sweep-1-of-1: a processor, 2 cores"):
        assert part in text
    assert "the best of many settings seems faster than it is" in text
    assert "disturbed" not in text
    text = on_sweep(report({0: outcome(disturbed=3, near_ties=2), 1: outcome(1.4)}))
    assert "3 turns were disturbed by other processes" in text
    assert "2 texts differ from the text of ar by a near tie" in text


def test_what_has_no_speed_is_named_with_the_reason() -> None:
    text = on_sweep(report(dict.fromkeys(range(7), OTHER)))
    assert (text.count(f": {OTHER}"), "and 2 more" in text, "L-bar" in text) == (5, True, False)
    assert "more" not in on_sweep(report(dict.fromkeys(range(5), OTHER)))


@pytest.mark.parametrize("question", [request(axes=AXES | {"T": (100, 200, 300, 500, 1000)}), SMALL])
def test_a_report_is_at_most_80_columns_wide(question: SweepRequest) -> None:
    text = on_sweep(report(dict.fromkeys(range(len(question.settings)), outcome()), question))
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", SPACES)
def test_every_setting_of_every_space_can_be_decoded(name: str) -> None:
    space = SPACES[name]
    for preset in METHODS[space.method].presets or (None,):
        asked = request(space=name, axes=dict(space.axes), reference=msgspec.to_builtins(space.base(preset)))
        for setting in asked.settings:
            assert [config.max_new_tokens for config in asked.configs(setting)] == [setting.length] * 2
    if name == "fixed":
        assert len({setting.key for setting in asked.settings}) == 450, "the paper's"
        assert {setting.length for setting in asked.settings} == {100, 200, 300, 500, 1000}


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("thresholds", {"tau_h": ".3", "tau_l": ".5"}, "is possible; choose values so that tau_l is below tau_h"),
        ("thresholds", {"T": ",".join(map(str, range(1, 1000)))}, "has 24975 settings, which are too many; give axes"),
        ("thresholds", {"B": "2"}, "the space thresholds has no axis 'B'; choose from tau_h, tau_l, T"),
        ("fixed", {"D": "3.5"}, "the axis D is '3.5', which is invalid; give whole numbers with commas"),
        ("fixed", {"tau": ""}, "the axis tau is '', which is invalid; give numbers"),
    ],
)
def test_an_impossible_grid_is_refused(name: str, given: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)):
        SPACES[name].grid(SPACES[name].axes_with(given))


def test_an_axis_reads_its_kind_of_numbers_once_each() -> None:
    found = SPACES["fixed"].axes_with({"tau": ".1,0.10, 1", "D": "3, 4,3"})
    assert found == {**SPACES["fixed"].axes, "tau": (0.1, 1.0), "D": (3, 4)}


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
    space = SPACES[name]
    base = space.base(None)
    asked = request(space=name, reference=msgspec.json.decode(msgspec.json.encode(base)))
    found = [config.rules(space.method) for config in asked.configs(GridPoint({**values, "T": 9}))]
    assert found == [base, rules]
