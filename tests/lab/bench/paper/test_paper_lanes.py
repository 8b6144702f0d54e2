"""The lanes: the paper's rows in the engine's parameters."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui.lab.bench.baselines import ASSISTED, CACHES
from dynatui.lab.bench.paper import experiments as lanes
from dynatui.lab.bench.paper.experiments import catalogue, fixed_grid, paper_depth, rules, sensitivity
from dynatui.lab.bench.paper.records import Lane
from dynatui.lab.bench.sweep import spaces

ROWS = catalogue(sampled=False)
VARIED = sensitivity(spaces.THRESHOLDS, spaces.BREADTHS, spaces.DEPTHS)
GRID = fixed_grid(spaces.FIXED_DEPTHS, spaces.BRANCHINGS, spaces.TAUS)


def all_lanes() -> Iterator[Lane]:
    yield from (*ROWS.values(), *VARIED, *GRID)


def of(name: str) -> object:
    found = rules(ROWS[name])
    return found and found[1]


def test_no_two_lanes_have_one_name() -> None:
    names = [lane.name for lane in all_lanes()]
    assert len(set(names)) == len(names)


def test_a_lane_that_was_kept_is_the_same() -> None:
    kept = msgspec.json.encode(list(all_lanes()))
    assert msgspec.json.decode(kept, type=list[Lane]) == list(all_lanes())


def test_a_lane_s_parameters_are_all_that_its_method_obeys() -> None:
    for lane in (lane for lane in all_lanes() if lane.method in METHODS):
        found = rules(lane)
        config = RunConfig().with_rules(*found) if found else RunConfig()
        kept = msgspec.json.encode(METHODS[lane.method].parameters(config))
        assert msgspec.json.decode(kept) == lane.parameters, lane.name


def test_phase_1_adapts_breadth_alone() -> None:
    found = of("phase 1")
    assert isinstance(found, DynaTree)
    assert (found.branching, found.tau_h, found.tau_l, found.tau) == ((1, 2, 3), 0.9, 0.4, 0.05)
    assert (found.d_max, found.rho_stop, found.rho_deep, found.history) == (5, 0, 0, False)


def test_phases_2_and_3_add_depth_and_history() -> None:
    assert of("phase 2") == DynaTree(history=False)
    assert of("phase 3") == DynaTree()
    assert of(lanes.DEEPER) == replace(DynaTree(), d_max=9)


def test_fixed_trees_are_those_of_the_paper() -> None:
    assert of("fixed D5 B2") == Fixed(5, 2, 0.05, 256)
    assert of("fixed D8 B3") == Fixed(8, 3, 0.1, 256)
    assert of("no pruning") == Fixed(5, 2, 0.0, 512)
    assert of("linear K=7") == Linear(7)


def test_the_grid_has_every_depth_branching_and_threshold_once() -> None:
    shapes = {(lane.parameters["depth"], lane.parameters["branching"], lane.parameters["tau"]) for lane in GRID}
    assert len(shapes) == len(GRID) == 90
    assert {lane.parameters["n_max"] for lane in GRID} == {128}


def test_sensitivity_varies_one_of_three_at_a_time() -> None:
    assert len(VARIED) == 13 + 8 + 7
    by_name = {lane.name: lane.parameters for lane in VARIED}
    assert by_name["branching 3,3,5"]["branching"] == [3, 3, 5]
    deep = by_name["d0=8 d_max=12"]
    assert (deep["d0"], deep["d_max"], deep["tau_h"], deep["tau_l"]) == (8, 12, 0.8, 0.4)
    assert by_name["tau_h=0.95 tau_l=0.3"]["d_max"] == 8


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("ar", None),
        ("linear K=5", 5),
        ("fixed D8 B3", 10),
        ("phase 1", 7),
        ("phase 3", 7),
        ("dynatree tuned", 7),
        ("alg1", 7),
        ("auto", None),
    ],
)
def test_the_paper_s_acceptance_divides_by_a_depth(name: str, depth: int | None) -> None:
    assert paper_depth(ROWS[name]) == depth


def test_transformers_own_generation_is_measured_in_all_settings() -> None:
    found = {name for name, lane in ROWS.items() if lane.family == "hf"}
    assert found == {f"generate {name}" for name in CACHES} | {f"assisted {name}" for name in ASSISTED}
    assert ROWS[lanes.ASSISTANT].paper_name == "HF assisted"


@pytest.mark.parametrize("sampled", [False, True])
def test_what_transformers_sample_is_a_text_of_their_own(sampled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    rows = catalogue(sampled=sampled)
    assert rows[lanes.ASSISTANT].own_text is sampled
    assert not rows["phase 3"].own_text
