"""The lanes, prompts and text lengths of each experiment: the paper's rows in the engine's parameters."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from decoder.errors import ConfigError
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui.lab.bench import spaces
from dynatui.lab.bench.baselines import ASSISTED, CACHES
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.paper.experiments import (
    ASSISTANT,
    DEEPER,
    NAMES,
    QUICK,
    Extent,
    catalogue,
    fixed_grid,
    paper_depth,
    plan,
    require_names,
    rules,
    sensitivity,
)
from dynatui.lab.bench.paper.records import PaperExperiment, PaperLane

PROMPTS = tuple(f"text {number}" for number in range(12))
WIKITEXT = TextSet(name="wikitext", title="W", stands_for="WikiText-2", prompts=PROMPTS)
BOOKS = TextSet(name="books", title="B", stands_for="PG-19", prompts=PROMPTS)
ROWS = catalogue(sampled=False)
VARIED = sensitivity(spaces.THRESHOLDS, spaces.BREADTHS, spaces.DEPTHS)
GRID = fixed_grid(spaces.FIXED_DEPTHS, spaces.BRANCHINGS, spaces.TAUS)
LANES = [*ROWS.values(), *VARIED, *GRID]


def planned(extent: Extent = Extent(), **changes: Any) -> tuple[PaperExperiment, ...]:  # noqa: B008 - frozen
    return plan(replace(extent, **changes), (BOOKS, WIKITEXT), sampled=False)[1]


def named(found: tuple[PaperExperiment, ...], name: str) -> list[PaperExperiment]:
    return [each for each in found if each.name == name]


def test_the_usual_extent_is_the_paper_s() -> None:
    lanes, usual = plan(Extent(), (BOOKS, WIKITEXT), sampled=False)
    books, texts = named(usual, "main")
    assert (texts.prompts, texts.most, texts.unit, books.most) == (10, 800, "characters", 1000)
    assert texts.lengths == (100, 200, 300, 500, 750, 1000, 1200, 1500)
    assert [each.most for each in named(usual, "prompt_length")] == [100, 200, 300, 500, 750, 1000]
    assert {each.lengths for each in named(usual, "prompt_length")} == {texts.lengths}
    (grid,), (varied,) = named(usual, "fixed_trees"), named(usual, "sensitivity")
    assert (len(grid.lanes), grid.prompts, grid.lengths) == (91, 2, texts.lengths)
    assert (varied.lanes[:2], len(varied.lanes)) == (("ar", "fixed D5 B2"), 2 + 13 + 8 + 7)
    assert {name for each in usual for name in each.lanes} == {lane.name for lane in lanes}


def test_lanes_that_were_asked_for_are_those_of_main_and_prompt_length_behind_plain_decoding() -> None:
    found = planned(lanes=("linear K=6",), experiments=("prompt_length", "main"))
    assert {each.lanes for each in found} == {("ar", "linear K=6")}
    assert [each.name for each in found] == ["main"] * 2 + ["prompt_length"] * 6
    whole = planned(lanes=("phase 3", "linear K=6"))
    assert all(each.lanes[0] == "ar" and len(set(each.lanes)) == len(each.lanes) for each in whole)
    books, texts = named(whole, "main")
    assert texts.lanes == ("ar", "phase 3", "linear K=6")
    assert books.lanes == ("ar", "phase 3", "phase 3 D_max=9", "linear K=6"), "the authors' trees on PG-19 are deeper"


def test_all_but_main_are_on_wikitext_and_no_more_is_decoded_than_asked_for_or_there_is() -> None:
    assert {each.data_set for each in planned() if each.name != "main"} == {"wikitext"}
    assert {each.data_set for each in plan(Extent(), (BOOKS,), sampled=False)[1]} == {"books"}
    assert named(planned(length=300), "main")[1].lengths == (100, 200, 300)
    assert {each.prompts for each in named(planned(prompts=50), "main")} == {12}
    assert named(planned(prompts=1), "fixed_trees")[0].prompts == 1


def test_a_limit_in_tokens_leaves_prompt_lengths_in_characters() -> None:
    found = planned(most=64, unit="tokens")
    assert {(each.most, each.unit) for each in named(found, "main")} == {(64, "tokens")}
    assert {each.unit for each in named(found, "prompt_length")} == {"characters"}


def test_the_quick_extent_has_every_experiment_and_far_less_to_decode() -> None:
    def tokens(found: tuple[PaperExperiment, ...]) -> int:
        return sum(len(each.lanes) * each.prompts * each.lengths[-1] for each in found)

    assert {each.name for each in planned(QUICK)} == set(NAMES)
    assert tokens(planned(QUICK)) < tokens(planned()) / 40


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"experiments": ("main", "best")}, "--experiments names 'best', which is unknown; choose from main, "),
        ({"experiments": ()}, "--experiments names '', which is unknown; choose from main, "),
        ({"lanes": ("fastest",)}, "--lanes names 'fastest', which is unknown; choose from ar, linear K=4, "),
    ],
)
def test_what_there_is_not_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        require_names(Extent(**changes))


def test_no_two_lanes_have_one_name_and_one_that_was_kept_is_the_same() -> None:
    assert len({lane.name for lane in LANES}) == len(LANES)
    assert msgspec.json.decode(msgspec.json.encode(LANES), type=list[PaperLane]) == LANES


def test_a_lane_s_parameters_are_all_that_its_method_obeys() -> None:
    for lane in (lane for lane in LANES if lane.method in METHODS):
        found = rules(lane)
        config = RunConfig().with_rules(*found) if found else RunConfig()
        kept = msgspec.json.encode(METHODS[lane.method].parameters(config))
        assert msgspec.json.decode(kept) == lane.parameters, lane.name


# Phase 1 adapts breadth alone: without adaptive depth, the base depth has no effect.
BREADTH_ALONE = DynaTree(d0=4.0, d_max=5, rho_stop=0.0, rho_deep=0.0, history=False)


@pytest.mark.parametrize(
    ("name", "parameters", "depth"),
    [
        ("ar", None, None),
        ("linear K=5", Linear(5), 5),
        ("fixed D5 B2", Fixed(5, 2, 0.05, 256), 7),
        ("fixed D8 B3", Fixed(8, 3, 0.1, 256), 10),
        ("no pruning", Fixed(5, 2, 0.0, 512), 7),
        ("phase 1", BREADTH_ALONE, 7),
        ("phase 2", DynaTree(history=False), 7),
        ("phase 3", DynaTree(), 7),
        (DEEPER, DynaTree(d_max=9), 7),
        ("alg1", DynaTree(), 7),
        ("dynatree tuned", PRESETS["tuned"], 6),
        ("auto", METHODS["auto"].own, None),
    ],
)
def test_a_lane_has_the_paper_s_parameters_and_the_depth_by_which_its_acceptance_divides(
    name: str, parameters: object, depth: int | None
) -> None:
    found = rules(ROWS[name])
    assert (found and found[1], paper_depth(ROWS[name])) == (parameters, depth)


def test_the_sweeps_have_every_setting_once_and_vary_one_of_three_at_a_time() -> None:
    shapes = {(lane.parameters["depth"], lane.parameters["branching"], lane.parameters["tau"]) for lane in GRID}
    assert len(shapes) == len(GRID) == 90
    assert {lane.parameters["n_max"] for lane in GRID} == {128}
    by_name = {lane.name: lane.parameters for lane in VARIED}
    assert len(by_name) == 13 + 8 + 7
    assert by_name["branching 3,3,5"]["branching"] == [3, 3, 5]
    deep = by_name["d0=8 d_max=12"]
    assert (deep["d0"], deep["d_max"], deep["tau_h"], deep["tau_l"]) == (8, 12, 0.8, 0.4)
    assert by_name["tau_h=0.95 tau_l=0.3"]["d_max"] == 8


@pytest.mark.parametrize("sampled", [False, True])
def test_transformers_own_generation_is_measured_in_all_settings_and_has_its_own_text_where_it_samples(
    sampled: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    rows = catalogue(sampled=sampled)
    found = {name: lane for name, lane in rows.items() if lane.family == "hf"}
    assert found.keys() == {f"generate {name}" for name in CACHES} | {f"assisted {name}" for name in ASSISTED}
    assert {lane.own_text for lane in found.values()} == {sampled}
    assert (rows[ASSISTANT].paper_name, rows["phase 3"].own_text) == ("HF assisted", False)
