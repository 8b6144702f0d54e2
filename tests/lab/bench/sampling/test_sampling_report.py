"""What is compared, and from records to best shapes, means, claims and tables, with known true results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import structs

from decoder.analysis.interval import Interval
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.errors import ConfigError, PromptError
from decoder.sampling.settings import Sampling
from decoder.verify.names import VERIFIER_NAMES, Drafting
from dynatui.lab.bench.data_sets import FILE
from dynatui.lab.bench.record_log import RecordLog
from dynatui.lab.bench.sampling.records import (
    FORMAT,
    Contest,
    Decoded,
    Realised,
    RoundCosts,
    SamplingRequest,
    TextKey,
    given,
    label,
    round_costs,
    samplings,
    spec_bench,
)
from dynatui.lab.bench.sampling.report import SamplingReport, best_shape, block_efficiency, for_tokens, report
from dynatui.lab.bench.sampling.statistics import (
    REPORTED,
    TOKENS,
    _drawn_means,
    along_depth,
    estimate,
    mean,
    means,
    of_measure,
    ranking,
    ratio,
    series,
)
from dynatui.lab.bench.sampling.table import on_samplings
from tests.lab.bench.data_sets.makers import questions, written
from tests.lab.bench.sampling.records import COSTS, expected, header, request

IID, DELAYED = (Contest("specinfer", drafting) for drafting in (Drafting.IID, Drafting.DELAYED))


def per_prompt(*values: float, task: str = "one", sampling: int = 0) -> pd.Series:
    return series({TextKey(sampling, task, prompt): value for prompt, value in enumerate(values)})


def test_the_best_shape_is_open_to_the_contest_and_the_best_for_the_aim_on_all_roots() -> None:
    those = request()
    records = [expected(those, TextKey(0, "one", 0), {"specinfer": {(2, 0, 1): 1.9, (2, 0, 2): 2.0, (2, 2, 2): 3.0}})]
    assert best_shape(those, records, IID, for_tokens) == (DelayedTree(2, 0, 2), 2.0)
    assert best_shape(those, records, DELAYED, for_tokens) == (DelayedTree(2, 2, 2), 3.0)
    shape, _ = best_shape(those, records, IID, lambda shape, tokens: tokens - 0.2 * shape.depth)
    assert shape == DelayedTree(2, 0, 1)
    many = expected(those, TextKey(0, "one", 0), {"specinfer": {(2, 0, 2): 2.0}})
    few = expected(those, TextKey(0, "one", 1), {"specinfer": {(2, 0, 2): 6.0}})
    assert best_shape(those, [structs.replace(many, roots=3), few], IID, for_tokens) == (DelayedTree(2, 0, 2), 3.0)


def test_a_shape_is_judged_on_prompts_on_which_it_was_not_chosen() -> None:
    those = request()
    lucky_first = expected(those, TextKey(0, "one", 0), {"specinfer": {(2, 0, 2): 9.0, (2, 0, 1): 1.5}})
    lucky_second = expected(those, TextKey(0, "one", 1), {"specinfer": {(2, 0, 1): 9.0, (2, 0, 2): 1.25}})
    found = block_efficiency(those, [lucky_first, lucky_second], IID)
    assert found.to_dict() == {TextKey(0, "one", 0): 1.5, TextKey(0, "one", 1): 1.25}


def test_each_task_and_each_setting_weighs_alike() -> None:
    values = pd.concat([per_prompt(1.0, 3.0), per_prompt(8.0, task="two"), per_prompt(4.0, sampling=1)])
    assert mean(values) == pytest.approx((2 + 8 + 4) / 3)
    assert means(values, "task") == pytest.approx({"one": 3.0, "two": 8.0})
    assert means(values, "sampling") == pytest.approx({0: 5.0, 1: 4.0})


def test_samples_keep_the_prompts_of_a_task_together_and_replace_values_that_none_of_them_has() -> None:
    """The second setting lacks all prompts but the first, as after an interruption."""
    values = pd.concat([per_prompt(1.0, 3.0, 5.0), per_prompt(8.0, 6.0, task="two"), per_prompt(4.0, sampling=1)])
    drawn = [np.array([[0, 0, 2], [1, 1, 1]]), np.array([[0, 1], [1, 1]])]
    assert _drawn_means(values, drawn) == pytest.approx([(7 / 3 + 4 + 7) / 3, (3 + 4 + 6) / 3])


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    luck = np.random.default_rng(0)
    found = [estimate(per_prompt(*luck.normal(5, 1, 30)), 0) for _ in range(100)]
    held = sum((each.low or 9.0) < 5 < (each.high or 0.0) for each in found)
    assert 85 <= held <= 99


def test_a_quotient_of_values_that_vary_together_is_certain() -> None:
    values = per_prompt(*np.random.default_rng(0).uniform(1, 9, 20))
    found = ratio(2 * values, values, 0)
    assert found.value == pytest.approx(2)
    assert found.low is None or found.low == pytest.approx(2)
    assert ratio(per_prompt(4.0, 100.0), per_prompt(2.0), 0).value == 2.0, "of the texts that both know"
    assert estimate(per_prompt(3.0), 0) == Interval(value=3.0, low=None, high=None)


def test_a_ranking_counts_pairs_that_keep_the_paper_s_order() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 20)
    values = {name: per_prompt(*(level + noise)) for name, level in {"nss": 2.0, "block": 1.0, "khisti": 3.0}.items()}
    found = ranking("x", values, {"nss": 1.0, "block": 2.0, "khisti": 3.0, "naive": 4.0}, 0)
    assert (found.here, found.paper) == (["khisti", "nss", "block"], ["khisti", "block", "nss"])
    assert (found.holds, found.fails, found.open) == (2, 1, 0)


def test_claims_compare_what_the_paper_compares() -> None:
    reported = REPORTED[TOKENS]
    noise = np.random.default_rng(0).normal(0, 0.01, 20)
    iid = {name: per_prompt(*(reported[0][name] + noise)) for name in VERIFIER_NAMES}
    delayed = {name: per_prompt(*(reported[1][name] + noise)) for name in reported[1]}
    found = {claim.says: claim for claim in of_measure(TOKENS, iid, delayed, 0)}
    for claim in found.values():
        assert claim.paper == pytest.approx(claim.here.value, rel=0.01)
        assert claim.verdict == ("holds" if claim.here.value > 1 else "does not hold")
    assert found[
        "block efficiency: Traversal over SpecTr, the best of the other verifiers"
    ].here.value == pytest.approx(5.31 / 4.61, rel=0.01)
    assert found["block efficiency: BV, the worst of the other verifiers, over NSS"].here.value == pytest.approx(
        4.30 / 4.05, rel=0.01
    )
    assert found["block efficiency: Khisti on delayed trees over i.i.d. trees"].here.value == pytest.approx(
        5.23 / 4.41, rel=0.01
    )


def test_figure_1_is_the_deepest_level_against_the_root() -> None:
    distance = [per_prompt(0.5, 0.6), per_prompt(0.4, 0.5), per_prompt(1.0, 1.2)]
    grows, falls = along_depth(distance, {"specinfer": [per_prompt(0.8, 0.9), per_prompt(0.4, 0.4)]}, 0)
    assert grows.here.value == pytest.approx(2.0)
    assert falls.here.value == pytest.approx(0.85 / 0.4)
    assert falls.verdict == "holds"


def reported(
    those: SamplingRequest,
    tokens: Mapping[str, Mapping[tuple[int, int, int], float]],
    times: Mapping[str, tuple[float, float]],
) -> SamplingReport:
    """Report of texts of eight tokens in four rounds; `times` has the seconds and waiting share of each contender."""
    log = RecordLog(None, FORMAT)
    first = log.begin(header(those))
    for place in those.places():
        log.add(expected(those, place, tokens))
        if place.prompt < those.decoded:
            turns = tuple(
                Decoded(contender=name, tokens=8, rounds=4, decode_s=wall, waited=share)
                for name, (wall, share) in times.items()
            )
            log.add(Realised(place=place, repeat=0, turns=turns))
    return report(log, first, load_after=1.0)


@pytest.fixture(scope="module")
def whole() -> SamplingReport:
    those = request(
        verifiers=VERIFIER_NAMES,
        samplings=(Sampling(0.6), Sampling(1.0, 0, 0.9)),
        tasks={"math": ("a", "b"), "other": ("c",)},
    )
    times = {"ar": (1.6, 0.5), "dynatree": (0.4, 0), "specinfer 2,0,2": (0.5, 0), "traversal 2,1,2": (0.25, 0.2)}
    return reported(those, {"specinfer": {(2, 0, 2): 3.0}, "traversal": {(2, 1, 2): 4.0}}, times)


def test_a_report_has_a_row_for_every_contest_and_for_coupled_trees(whole: SamplingReport) -> None:
    drawn = {(row.verifier, row.drafting, row.k): row for row in whole.block_efficiency}
    assert drawn["specinfer", "iid", None].mean.value == 3.0
    assert drawn["traversal", "delayed", None].mean.value == 4.0
    assert drawn["coupled", "dynatree", None].mean.value == 2.0
    assert drawn["naive", "iid", None].by_sampling == {"T 0.6": 1.0, "p 0.9": 1.0}
    speeds = {(row.verifier, row.drafting): row for row in whole.tokens_per_second}
    assert speeds["traversal", "delayed"].by_task == pytest.approx({"math": 40.0, "other": 40.0})
    over_ar: Any = speeds["traversal", "delayed"].over_ar
    assert over_ar.value == pytest.approx(4.0)
    means = {key: row.mean.value for key, row in speeds.items()}
    assert (means["coupled", "dynatree"], means["coupled", "ar"]) == pytest.approx((20.0, 10.0)), "without waiting"
    assert (means["specinfer", "iid"], means["specinfer", "delayed"]) == (16.0, 16.0), "of the same shape"
    assert (whole.roots, whole.decoded, whole.disturbed, whole.complete) == (6, 16, 8, True)


def test_what_was_decoded_stands_beside_what_was_expected_of_the_best_shape(whole: SamplingReport) -> None:
    found = {(one.verifier, one.drafting): (one.realised, one.expected) for one in whole.agreement}
    assert found["traversal", "delayed"] == (2.0, 4.0)
    assert found["specinfer", "iid"] == (2.0, 3.0)
    best = {(one.among, one.aim, one.verifier, one.drafting): one.shape for one in whole.actions}
    assert {among for among, *_ in best} == {"T 0.6", "p 0.9", "math", "other"}
    assert best["math", "tokens a round", "traversal", "delayed"] == (2, 1, 2)
    assert best["p 0.9", "tokens a round", "specinfer", "iid"] == (2, 0, 2)


def test_the_table_fits_and_says_what_stands_in_for_what_and_that_the_machine_was_busy(whole: SamplingReport) -> None:
    text = on_samplings(whole)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "math for OlympiadBench, other." in " ".join(text.split())
    assert "BUSY MACHINE" in text
    assert "coupled dynatree" in text
    assert "INTERRUPTED" not in text
    assert "Math (H)" in text


def test_a_selector_has_rows_of_its_own_beside_the_best_delayed_shapes() -> None:
    those = request(verifiers=("specinfer", "block"), k=4, length=8, selectors=("specinfer abc",), decoded=2)
    times = {"ar": (1.6, 0.0), "specinfer 2,1,2": (0.5, 0.0), "specinfer selector": (0.4, 0.0)}
    found = reported(those, {"specinfer": {(2, 1, 2): 3.0}, "block": {(1, 0, 4): 2.0}}, times)
    efficiency = {(row.verifier, row.drafting): row.mean.value for row in found.block_efficiency}
    assert efficiency["specinfer", "selector"] == 1.5
    assert ("block", "selector") not in efficiency
    speeds = {(row.verifier, row.drafting): row.mean.value for row in found.tokens_per_second}
    assert speeds["specinfer", "selector"] == pytest.approx(20.0)
    assert speeds["specinfer", "delayed"] == pytest.approx(16.0)
    assert {(one.verifier, one.drafting): one.expected for one in found.agreement}["specinfer", "selector"] == 1.5
    quotients = {claim.says: claim.here.value for claim in found.claims if "with a selector" in claim.says}
    assert quotients == pytest.approx({"tokens/s: SpecInfer with a selector, over the best delayed shape": 1.25})
    assert [ranking.what for ranking in found.rankings if "selector" in ranking.what]
    text = on_samplings(found)
    assert "SpecInfer, selector" in text
    assert "selector: chooses shapes for speed; trained for specinfer;" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("smaller", [{"k": 3}, {"length": 7}])
def test_a_selector_takes_no_part_where_its_shapes_are_not_all_compared(smaller: dict[str, int]) -> None:
    those = request(**{"selectors": ("specinfer abc",), "k": 4, "length": 8, **smaller})
    assert those.selecting() == []


def test_a_task_has_the_first_turns_of_its_category_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"question.jsonl: No such file or directory; set --data to"):
        spec_bench(tmp_path, ["math"], 1)
    file = written(tmp_path / FILE, questions("math", "coding", "math"))
    assert spec_bench(tmp_path, ["math", "coding"], 5) == {"math": ("math 0", "math 2"), "coding": ("coding 1",)}
    assert spec_bench(tmp_path, ["math"], 1) == {"math": ("math 0",)}
    with pytest.raises(ConfigError, match="--tasks names 'law', which is unknown; choose from math, coding"):
        spec_bench(tmp_path, ["law"], 1)
    file.write_text("no json", encoding="utf-8")
    with pytest.raises(PromptError, match="holds no questions of Spec-Bench"):
        spec_bench(tmp_path, ["math"], 1)


def test_prompts_of_no_task_are_one_task() -> None:
    assert given(["a", "b"]) == {"prompts": ("a", "b")}
    with pytest.raises(ConfigError, match="there is no prompt"):
        given([])


def test_settings_are_those_of_the_paper() -> None:
    found = samplings((0.2, 1.0), (0.9, 1.0))
    assert [(one.temperature, one.top_p) for one in found] == [(0.2, 1.0), (1.0, 1.0), (1.0, 0.9)]
    assert [label(one) for one in found] == ["T 0.2", "T 1", "p 0.9"]


def test_shapes_are_the_paper_s_and_belong_to_the_contests_that_may_choose_them() -> None:
    paper_s = request(verifiers=VERIFIER_NAMES, k=4, length=8)
    assert len(paper_s.shapes("khisti")) == 233
    assert paper_s.shapes("block") == [DelayedTree(1, 0, depth) for depth in range(17)], "it reads one path"
    those, contest = request(), Contest("traversal", Drafting.IID, 2)
    shapes = those.shapes("specinfer")
    iid = {(shape.k, shape.l1, shape.l2) for shape in shapes if those.belongs(shape, IID)}
    assert iid == {(1, 0, 0), (1, 0, 1), (1, 0, 2), (2, 0, 1), (2, 0, 2)}
    assert all(those.belongs(shape, DELAYED) for shape in shapes)
    assert contest in those.contests()
    assert those.belongs(DelayedTree(2, 0, 2), contest)
    assert not those.belongs(DelayedTree(1, 0, 2), contest)
    delayed = {one.verifier for one in those.contests() if one.drafting == Drafting.DELAYED}
    assert delayed == {"specinfer", "traversal"}


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        (DelayedTree(1, 0, 0), 4.0),
        (DelayedTree(1, 0, 1), 1.0 + 4.0),
        (DelayedTree(1, 2, 0), 1.0 + 1.0 + 5.0),
        (DelayedTree(2, 0, 2), 1.0 + 1.5 + 6.0),
        (DelayedTree(2, 1, 1), 1.0 + 1.0 + 5.0),
        (DelayedTree(2, 1, 2), 1.0 + 1.0 + 1.5 + 6.5),
    ],
)
def test_a_round_takes_the_passes_of_its_levels_and_one_over_all_rows(shape: DelayedTree, seconds: float) -> None:
    assert COSTS.seconds(shape) == pytest.approx(seconds)


def test_costs_are_the_least_of_several_series_and_never_fall_with_rows() -> None:
    quiet, busy = (
        Costs(
            plain=RowCostCurve({1: 4.0 * by}),
            catch_up=RowCostCurve({1: 1.0 * by}),
            draft=RowCostCurve({1: 2.0 * by, 2: 1.0 * by, 3: 3.0 * by}),
            verify=RowCostCurve({1: 5.0 * by, 8: 9.0 * by}),
            host=RowCostCurve({1: 0.1}),
        )
        for by in (1, 7)
    )
    found: RoundCosts = round_costs([busy, quiet])
    assert found.first_s == 1.0
    assert found.level_s[:4] == (0.0, 1.0, 1.0, 3.0)
    assert found.verify_s[1] == 4.0
