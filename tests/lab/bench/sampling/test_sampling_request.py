"""The contents of a comparison: tasks, settings, verifiers, shapes, and the cost of a round of each shape."""

from pathlib import Path

import pytest

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.errors import ConfigError, DecoderError, PromptError
from decoder.verify.names import VERIFIER_NAMES, Drafting
from dynatui.lab.bench.data_sets.sources import FILE
from dynatui.lab.bench.sampling.log import RoundCosts, round_costs
from dynatui.lab.bench.sampling.request import Contest, given, label, samplings, spec_bench
from tests.lab.bench.sampling.records import COSTS, request

QUESTIONS = """\
{"question_id": 1, "category": "math", "turns": ["What is 1 + 1?", "And 2 + 2?"]}
{"question_id": 2, "category": "coding", "turns": ["Write a loop."]}
{"question_id": 3, "category": "math", "turns": ["What is 3 + 3?"]}
"""


def data(folder: Path, questions: str = QUESTIONS) -> Path:
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text(questions, encoding="utf-8")
    return folder


def test_a_task_has_the_first_turns_of_its_category(tmp_path: Path) -> None:
    tasks = spec_bench(data(tmp_path), ["math", "coding"], 5)
    assert tasks == {"math": ("What is 1 + 1?", "What is 3 + 3?"), "coding": ("Write a loop.",)}
    assert spec_bench(tmp_path, ["math"], 1) == {"math": ("What is 1 + 1?",)}


@pytest.mark.parametrize(
    ("questions", "name", "fault", "why"),
    [
        (QUESTIONS, "law", ConfigError, "--tasks names 'law', which is unknown; choose from math, coding"),
        ("no json", "math", PromptError, "is not a question of Spec-Bench"),
        ('{"question_id": 1}', "math", PromptError, "is not a question of Spec-Bench"),
    ],
)
def test_tasks_that_are_not_there_are_refused(
    questions: str, name: str, fault: type[DecoderError], why: str, tmp_path: Path
) -> None:
    with pytest.raises(fault, match=why):
        spec_bench(data(tmp_path, questions), [name], 1)


def test_a_folder_without_spec_bench_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"question.jsonl: No such file or directory; set --data to"):
        spec_bench(tmp_path, ["math"], 1)


def test_prompts_of_no_task_are_one_task() -> None:
    assert given(["a", "b"]) == {"prompts": ("a", "b")}
    with pytest.raises(ConfigError, match="there is no prompt"):
        given([])


def test_settings_are_those_of_the_paper() -> None:
    found = samplings((0.2, 1.0), (0.9, 1.0))
    assert [(one.temperature, one.top_p) for one in found] == [(0.2, 1.0), (1.0, 1.0), (1.0, 0.9)]
    assert [label(one) for one in found] == ["T 0.2", "T 1", "p 0.9"]


def test_the_paper_s_actions_are_all_there_and_chains_for_what_reads_one_path() -> None:
    those = request(verifiers=VERIFIER_NAMES, k=4, length=8)
    assert len(those.shapes("khisti")) == 233
    assert those.shapes("block") == [DelayedTree(1, 0, depth) for depth in range(17)]


def test_iid_trees_have_no_path_and_no_more_levels_than_asked_for() -> None:
    those = request()
    iid = [shape for shape in those.shapes("specinfer") if those.belongs(shape, Contest("specinfer", Drafting.IID))]
    assert sorted((shape.k, shape.l1, shape.l2) for shape in iid) == [
        (1, 0, 0),
        (1, 0, 1),
        (1, 0, 2),
        (2, 0, 1),
        (2, 0, 2),
    ]
    delayed = Contest("specinfer", Drafting.DELAYED)
    assert all(those.belongs(shape, delayed) for shape in those.shapes("specinfer"))


def test_a_contest_of_so_many_rollouts_takes_no_others() -> None:
    those, contest = request(), Contest("traversal", Drafting.IID, 2)
    assert contest in those.contests()
    assert those.belongs(DelayedTree(2, 0, 2), contest)
    assert not those.belongs(DelayedTree(1, 0, 2), contest)


def test_what_reads_one_path_has_no_delayed_trees() -> None:
    draftings = {(contest.verifier, contest.drafting) for contest in request().contests()}
    assert ("specinfer", Drafting.DELAYED) in draftings
    assert not {("naive", Drafting.DELAYED), ("block", Drafting.DELAYED)} & draftings


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verifiers": ("naive", "best")}, "--verifiers names best; choose from nss"),
        ({"verifiers": ()}, "--verifiers names none; choose"),
        ({"k": 0}, "--k is 0; give 1 to 8"),
        ({"length": 99}, "--length is 99; give 1 to 16"),
        ({"max_new_tokens": 0}, "--max-new-tokens is 0"),
        ({"roots_every": 0}, "--roots-every is 0"),
        ({"decoded": -1}, "--decoded is -1"),
        ({"samplings": ()}, "no temperature was given"),
        ({"samplings": samplings((0.0,), ())}, "at temperature 0, all verifiers decode greedily"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        request(**changes)


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
