"""With a leader, every method decodes the same text, and a follower of its messages has the same caches.

Both sides are in one process, each with the whole model, because the tests check only their messages.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig, decode
from decoder.errors import ConfigError, LostRankError
from decoder.events import End, Event, Round, Run, Summary
from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.tensor_parallel.target import PEAK, PassCommand
from tests import tiny
from tests.decoder import any_family
from tests.decoder.makers import TinyModels
from tests.decoder.tensor_parallel.led_engine import led, led_by

PROMPT = "The tree grows"
SPREAD = tuple(name for name, method in METHODS.items() if not method.whole_target)
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)


def tokens_of(events: list[Any], method: str) -> list[int]:
    return [token for one in events if isinstance(one, Round) and one.method == method for token in one.committed]


@pytest.mark.parametrize(("family", "temperature"), [("neox", 0.7), ("qwen3", 0.0)])
def test_all_methods_that_can_be_spread_write_what_ar_writes_and_the_follower_keeps_up(
    tiny_models: TinyModels, family: str, temperature: float
) -> None:
    run = RunConfig(SPREAD, 20, temperature=temperature, dynatree=BUSHY, fixed=Fixed(tau=0.01, n_max=40))
    found = led(tiny_models, family)
    with torch.inference_mode():
        events = list(decode(found.engine, PROMPT, run))
    whole = tiny_models.play(tiny_models.pair(family), "float32", PROMPT, run)
    for method in SPREAD:
        assert tokens_of(events, method) == whole.tokens(method), method
    assert found.compared.passes == sum(isinstance(message, PassCommand) for message in found.channel.messages) > 40


@pytest.mark.parametrize("family", ["gemma4_text", "mistral"])
def test_a_follower_keeps_up_with_windows_and_with_rows_of_several_shapes(family: str) -> None:
    module = any_family.built(any_family.config_of(family))
    engine = led_by(any_family.engine_of(module, tiny.kin(module, seed=2)), module).engine
    text, _ = any_family.decoded(engine, any_family.PROMPT, RunConfig(("dynatree",), 30))
    assert text == any_family.greedy(module, any_family.PROMPT, 30)


def test_followers_let_go_of_caches_that_the_leader_has_let_go_of(tiny_models: TinyModels) -> None:
    found = led(tiny_models, "llama")
    with torch.inference_mode():
        for _ in range(4):
            list(decode(found.engine, PROMPT, RunConfig(("linear", "ar"), 4)))
    assert len(found.channel.caches) < 8


def test_a_run_tells_its_ranks_and_their_memory(tiny_models: TinyModels) -> None:
    found = led(tiny_models, "llama")
    with torch.inference_mode():
        events = list(decode(found.engine, PROMPT, RunConfig(("ar",), 4)))
    run, summary = events[0], events[-1]
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    assert run.ranks == ["cpu", "cpu"]
    assert run.place == "2 processes on cpu"
    assert "over 2 processes" in run.path_reason
    least, most = summary.peak_bytes_by_rank
    assert most == least + 1 > 1
    assert found.channel.messages[-1] == PEAK


@pytest.mark.parametrize("method", [name for name, found in METHODS.items() if found.whole_target])
def test_methods_that_need_the_whole_target_are_refused_by_name(tiny_models: TinyModels, method: str) -> None:
    with pytest.raises(ConfigError, match=f"^{method} needs the whole target"):
        list(decode(led(tiny_models, "llama").engine, PROMPT, RunConfig((method, "ar"), 4)))


def test_a_pass_that_fails_is_told_in_a_sentence_and_none_follows_it(tiny_models: TinyModels) -> None:
    found = led(tiny_models, "llama")

    def break_off(passes: int) -> None:
        if passes == 5:
            raise RuntimeError("[/src/pair.cc:553] Connection closed by peer [::1]:1. Check the logs of the worker.")

    found.channel.before = break_off
    events: list[Event] = []
    with (
        torch.inference_mode(),
        pytest.raises(
            LostRankError,
            match=r"^the 2 processes of the target cannot go on: Connection closed by peer \[::1\]:1; ",
        ),
    ):
        events.extend(decode(found.engine, PROMPT, RunConfig(("ar",), 24)))
    assert isinstance(events[-1], End)
    assert events[-1].reason == "error"
    count = len(found.channel.messages)
    with torch.inference_mode(), pytest.raises(LostRankError, match="start again"):
        list(decode(found.engine, PROMPT, RunConfig(("ar",), 24)))
    assert len(found.channel.messages) == count


def test_a_follower_that_is_gone_when_memory_is_asked_for_is_told_in_a_sentence(tiny_models: TinyModels) -> None:
    found = led(tiny_models, "llama")

    def break_off(_passes: int) -> None:
        raise RuntimeError("Connection closed by peer")

    found.channel.before = break_off
    with pytest.raises(LostRankError, match="cannot go on: Connection closed by peer"):
        found.leader.peak_bytes()


def test_a_difference_from_ar_is_told_without_a_verdict(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judgement of near ties needs the whole module in one process."""
    found = led(tiny_models, "llama")
    assert not found.engine.pair.target.hf.available
    usual = found.leader.forward
    rounds = 0

    def astray(*given: Any) -> Tensor:
        nonlocal rounds
        rounds += 1
        logits = usual(*given)
        return -logits if rounds == 9 else logits

    monkeypatch.setattr(found.leader, "forward", astray)
    with torch.inference_mode():
        *_, summary = decode(found.engine, PROMPT, RunConfig(("linear", "ar"), 24))
    assert isinstance(summary, Summary)
    figures = summary.methods["linear"]
    assert (figures.identical_to_ar, figures.near_tie, figures.first_difference_gap) == (False, None, None)


def test_after_an_interruption_in_a_pass_there_is_none_that_the_ranks_could_misunderstand(
    tiny_models: TinyModels,
) -> None:
    found = led(tiny_models, "llama")

    def interrupt(passes: int) -> None:
        if passes == 1:
            raise KeyboardInterrupt

    found.channel.before = interrupt
    with torch.inference_mode(), pytest.raises(KeyboardInterrupt):
        list(decode(found.engine, PROMPT, RunConfig(("ar",), 24)))
    with pytest.raises(LostRankError, match="cannot go on"):
        found.leader.peak_bytes()
    assert len(found.channel.messages) == 1
