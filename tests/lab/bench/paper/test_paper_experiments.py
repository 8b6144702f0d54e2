"""The lanes, prompts and text lengths of each experiment."""

from dataclasses import replace
from typing import Any

import pytest

from decoder.errors import ConfigError
from decoder.methods import METHODS
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper.experiments import NAMES, QUICK, Extent, Plan, plan, require_names
from dynatui.lab.bench.paper.records import PaperExperiment

PROMPTS = tuple(f"text {number}" for number in range(12))
WIKITEXT = TextSet(name="wikitext", title="W", stands_for="WikiText-2", prompts=PROMPTS)
BOOKS = TextSet(name="books", title="B", stands_for="PG-19", prompts=PROMPTS)


def planned(extent: Extent = Extent(), **changes: Any) -> Plan:  # noqa: B008 - frozen
    return plan(replace(extent, **changes), (BOOKS, WIKITEXT), sampled=False)


def named(found: Plan, name: str) -> list[PaperExperiment]:
    return [each for each in found.experiments if each.name == name]


def test_the_usual_extent_is_the_paper_s() -> None:
    books, texts = named(planned(), "main")
    assert (texts.prompts, texts.most, texts.unit, books.most) == (10, 800, "characters", 1000)
    assert texts.lengths == (100, 200, 300, 500, 750, 1000, 1200, 1500)
    assert [each.most for each in named(planned(), "prompt_length")] == [100, 200, 300, 500, 750, 1000]
    assert {each.lengths for each in named(planned(), "prompt_length")} == {texts.lengths}
    (grid,) = named(planned(), "fixed_trees")
    assert (len(grid.lanes), grid.prompts, grid.lengths) == (91, 2, texts.lengths)
    (varied,) = named(planned(), "sensitivity")
    assert (varied.lanes[:2], len(varied.lanes)) == (("ar", "fixed D5 B2"), 2 + 13 + 8 + 7)


def test_plain_decoding_is_the_first_lane_of_every_experiment() -> None:
    found = planned(lanes=("phase 1", "linear K=6"))
    assert {each.lanes[0] for each in found.experiments} == {"ar"}
    assert all(len(set(each.lanes)) == len(each.lanes) for each in found.experiments)


def test_every_lane_of_an_experiment_is_among_the_lanes() -> None:
    found = planned()
    assert {name for each in found.experiments for name in each.lanes} == {lane.name for lane in found.lanes}


def test_all_but_main_are_on_wikitext() -> None:
    assert {each.data_set for each in planned().experiments if each.name != "main"} == {"wikitext"}
    alone = plan(Extent(), (BOOKS,), sampled=False)
    assert {each.data_set for each in alone.experiments} == {"books"}


def test_on_pg19_trees_may_grow_deeper_besides() -> None:
    books, texts = named(planned(lanes=("phase 3",)), "main")
    assert (texts.lanes, books.lanes) == (("ar", "phase 3"), ("ar", "phase 3", "phase 3 D_max=9"))


def test_lanes_that_were_asked_for_are_those_of_main_and_prompt_length() -> None:
    found = planned(lanes=("linear K=6",), experiments=("prompt_length", "main"))
    assert {each.lanes for each in found.experiments} == {("ar", "linear K=6")}
    assert [each.name for each in found.experiments] == ["main"] * 2 + ["prompt_length"] * 6


def test_no_length_is_beyond_the_last() -> None:
    (_, texts) = named(planned(length=300), "main")
    assert texts.lengths == (100, 200, 300)


def test_a_limit_in_tokens_leaves_prompt_lengths_in_characters() -> None:
    found = planned(most=64, unit="tokens")
    assert {(each.most, each.unit) for each in named(found, "main")} == {(64, "tokens")}
    assert {each.unit for each in named(found, "prompt_length")} == {"characters"}


def test_no_more_prompts_are_asked_for_than_there_are() -> None:
    assert {each.prompts for each in named(planned(prompts=50), "main")} == {12}
    assert named(planned(prompts=1), "fixed_trees")[0].prompts == 1


def test_the_quick_extent_has_every_experiment_and_far_less_to_decode() -> None:
    def tokens(found: Plan) -> int:
        return sum(len(each.lanes) * each.prompts * each.lengths[-1] for each in found.experiments)

    assert {each.name for each in planned(QUICK).experiments} == set(NAMES)
    assert tokens(planned(QUICK)) < tokens(planned()) / 40


def test_methods_that_are_there_are_measured_and_others_are_not_missed() -> None:
    lanes = {lane.name for lane in planned().lanes}
    assert lanes & {"bestfirst", "streaming", "auto"} == METHODS.keys() & {"bestfirst", "streaming", "auto"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"experiments": ("main", "best")}, "--experiments names 'best', which is unknown; choose from main, "),
        ({"experiments": ()}, "--experiments names '', which is unknown; choose from main, "),
        ({"lanes": ("fastest",)}, "--lanes names 'fastest', which is unknown; choose from ar, linear K=4, "),
        ({"length": 0}, "--max-new-tokens is 0; give 1 or more"),
        ({"prompts": 0}, "--prompts is 0; give 1 or more"),
    ],
)
def test_what_there_is_not_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        planned(**changes)


def test_names_are_checked_without_any_text() -> None:
    require_names(Extent(lanes=("linear K=6",)))
    with pytest.raises(ConfigError, match="--lanes names 'best'"):
        require_names(Extent(experiments=("sensitivity",), lanes=("best",)))
