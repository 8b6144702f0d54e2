"""Tuning of a tiny pair from start to end, and the division of its time."""

from dataclasses import replace
from typing import Any

import pytest

from decoder.errors import DeviceError, PromptError
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.session.host import HostSession
from dynatui.lab.tuning import job as module
from dynatui.lab.tuning.job import CHECK_SHARE, FEWEST, OnPrompts, Turns, opened, reserve_s
from dynatui.lab.tuning.outcome import AUTO, CHAIN, PLAIN, SHIPPED, SHIPPED_CHAIN, Tuned
from dynatui.lab.tuning.search import MethodSetting
from dynatui.lab.tuning.study import trees
from dynatui.session import Models
from tests.decoder.makers import TinyModels

PROMPTS = tuple(f"{number} The tree grows where the draft is sure" for number in range(2 * FEWEST))
TREE = trees(0)
SHORT = RunConfig(max_new_tokens=6)


def on(tiny_models: TinyModels, **changes: Any) -> OnPrompts:
    pair = tiny_models.pair("neox")
    models = Models(str(pair.target), str(pair.draft), "cpu", "float32")
    return replace(OnPrompts(models, PROMPTS, SHORT, 0.03), **changes)


def run(job: OnPrompts, stopped_after: int = 10**6) -> tuple[Tuned, list[str], list[float]]:
    """Result, lines and shares of a tuning whose search is stopped after so many texts."""
    with opened(job, lambda _: None) as tuning:
        seen = list[Any]()
        for step in tuning.searching(lambda: len(seen) >= stopped_after):
            seen.append(step)
        seen += tuning.checking()
        return tuning.result(), [each.line for each in seen], [each.share for each in seen]


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_search_comes_before_a_check_of_everyone_on_other_texts_and_its_result_can_be_written_down(
    tiny_models: TinyModels, temperature: float
) -> None:
    found, lines, shares = run(on(tiny_models, config=RunConfig(max_new_tokens=6, temperature=temperature)))
    assert lines[0] == f"{'sampled' if temperature else 'tuned'} leads; 0 settings tried, 0 stopped early"
    assert lines[-1] == f"checking on other texts: {sum('leads' not in line for line in lines)} done"
    assert 0 <= min(shares) <= max(shares) < 1
    assert found.trials.finished > 0
    assert not found.trials.wrong
    assert {PLAIN, SHIPPED, AUTO, CHAIN} <= set(found.checked.speeds)
    assert found.checked.texts >= FEWEST
    assert not found.checked.wrong
    assert found.run.of(DynaTree) == (found.found or trees(temperature).shipped)
    assert found.run.of(Linear) == (found.chain if found.checked.keeps(CHAIN, SHIPPED_CHAIN) else Linear())
    assert (found.conditions.device, found.conditions.dtype, found.conditions.max_new_tokens) == ("cpu", "float32", 6)
    assert found.finished_at.endswith("Z")


def test_a_search_that_is_stopped_is_still_checked(tiny_models: TinyModels) -> None:
    found, lines, _ = run(on(tiny_models, minutes=0.1), stopped_after=2)
    assert sum("leads" in line for line in lines) == 3
    assert found.checked.texts >= FEWEST


@pytest.fixture
def turns(tiny_models: TinyModels) -> Turns:
    return Turns(tiny_models.loaded(tiny_models.pair("neox"), "float32"), SHORT, [[5, 6, 7, 8], [9, 10, 11]])


def test_a_text_of_another_method_is_found_out(turns: Turns) -> None:
    right = turns.samples({}, 0, 0)[0].tally.tokens
    wrong = [*right[:3], (right[3] + 1) % 200, *right[4:]]
    assert not turns.near_tie(0, wrong, right)
    assert not turns.near_tie(0, right[:3], right)


def test_turns_are_taken_of_settings_one_after_the_other_and_a_tree_without_room_tells_nothing(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> None:
        raise DeviceError("the memory of cpu is full")

    tree = MethodSetting(TREE.method, TREE.shipped)
    for k in (1, 2, 3):
        chain = MethodSetting("linear", Linear(k))
        found: Any = turns.compared(chain, tree, k % 2)
        assert (found.ratio > 0, found.right) == (True, True)
        with monkeypatch.context() as patch:
            patch.setattr(HostSession, "step", full)
            assert turns.compared(tree, chain, 0) is None
    assert len(turns.compared_s) == 6


def test_chat_prompts_are_searched_on_whole(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[object]()

    def noted(prompts: object) -> None:
        seen.append(prompts)
        raise PromptError("enough")

    monkeypatch.setattr(module, "whole", noted)
    monkeypatch.setattr(module, "encode_prompts", lambda *_, **given: [[1, 2, 3]] if given["chat"] else [])
    with pytest.raises(PromptError, match="enough"):
        run(on(tiny_models, config=RunConfig(max_new_tokens=6, chat=True)))
    assert seen == [[[1, 2, 3]]]


def test_the_check_has_its_share_of_the_time_and_enough_for_a_few_texts() -> None:
    assert reserve_s(300, []) == pytest.approx(CHECK_SHARE * 300)
    assert reserve_s(300, [0.5] * 50) == pytest.approx(CHECK_SHARE * 300)
    assert reserve_s(60, [6.0] * 10) == pytest.approx(FEWEST * 12)
    assert reserve_s(60, [40.0]) == pytest.approx(CHECK_SHARE * 60), "a slow beginning does not end the search"


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (("The tree",), r"1 different prompt of \d+ tokens in all cannot be split"),
        ((*PROMPTS, "x" * 4000), r"prompt 13 of 13: the prompt has"),
        ((*PROMPTS, ""), r"prompt 13 of 13: the prompt is empty"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(tiny_models: TinyModels, prompts: tuple[str, ...], said: str) -> None:
    with pytest.raises(PromptError, match=said):
        run(on(tiny_models, prompts=prompts))
