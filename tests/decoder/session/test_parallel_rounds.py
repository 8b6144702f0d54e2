"""A P-EAGLE head drafts all levels in one pass per round, and every method writes the text of plain decoding.

`test_eagle3_rounds` compares the trees of P-EAGLE heads with the reference.
"""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder import DynaTree, Linear, RunConfig, decode
from decoder.draft import head_text
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.parallel_passes import ParallelPasses
from decoder.engine import Engine
from decoder.events import Round
from decoder.forward.taps import LayerStates
from decoder.heads.eagle3 import Head
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.tree import TokenTree
from tests import tiny
from tests.decoder.makers import Played, TinyModels, host_session
from tests.eagle3_checkpoints import LAYOUTS, name
from tests.eagle3_reference import Eagle3Oracle
from tests.reference import greedy

PROMPT = "A small model guesses; "
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=60)
LAYOUT = {"llama": "P-EAGLE", "neox": "P-EAGLE, flat"}
"""Layout of the head for each family of targets."""


def engine_of(tiny_models: TinyModels, family: str, dtype: str = "float32") -> Engine:
    return tiny_models.loaded(tiny_models.pair(name(family, LAYOUT[family])), dtype)


def prompt_of(tiny_models: TinyModels, family: str) -> list[int]:
    return tiny_models.prompt_tokens(tiny_models.pair(name(family, LAYOUT[family])), PROMPT)


@pytest.mark.parametrize(
    ("family", "sampling", "count"), [("llama", Sampling(), None), ("neox", Sampling(0.8), 24)], ids=str
)
def test_every_method_writes_the_text_of_plain_decoding(
    tiny_models: TinyModels, family: str, sampling: Sampling, count: int | None
) -> None:
    """The text without a count fills the context."""
    saved, prompt = tiny_models.pair(name(family, LAYOUT[family])), prompt_of(tiny_models, family)
    count = count or tiny.CONTEXT - len(prompt) - 8
    config = RunConfig(METHODS, count, 3, dynatree=BUSHY, parameters={SAMPLING: sampling})
    module = tiny_models.plain(saved.target, "float32")
    plain = Eagle3Oracle(module, module, tiny.CONTEXT, sampling=sampling, seed=3, folder=saved.draft)
    played = Played(list(decode(engine_of(tiny_models, family), PROMPT, config)))
    expected = greedy(plain, prompt, count)
    assert {method: played.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)
    assert played.figures("dynatree").accepted


@pytest.mark.parametrize("method", ["linear", "fixed", "bestfirst", "dynatree"])
def test_one_pass_drafts_a_whole_tree(tiny_models: TinyModels, method: str) -> None:
    events = decode(engine_of(tiny_models, "llama"), PROMPT, RunConfig((method,), 24, dynatree=BUSHY))
    rounds = [event for event in events if isinstance(event, Round)]
    assert {event.draft_forwards for event in rounds} == {1}
    assert max(len(event.tokens) for event in rounds) > 3


def test_a_tree_is_no_deeper_than_a_pass_guesses(tiny_models: TinyModels) -> None:
    session = host_session(engine_of(tiny_models, "llama"), prompt_of(tiny_models, "llama"), 40, Linear(20))
    session.prefill()
    assert len(session.step(()).tree) == 1 + LAYOUTS["P-EAGLE"].guesses


def test_a_head_of_one_guess_drafts_one_level(tiny_models: TinyModels) -> None:
    engine = engine_of(tiny_models, "llama")
    head: Any = engine.pair.head
    single = copy.copy(head)
    single.shape = replace(head.shape, guesses=1)
    engine = replace(engine, pair=replace(engine.pair, head=single))
    session = host_session(engine, prompt_of(tiny_models, "llama"), 40, Linear(20))
    session.prefill()
    assert {len(session.step(()).tree) for _ in range(8)} == {2}


@pytest.mark.parametrize("family", LAYOUT)
def test_every_round_drafts_what_a_fresh_start_drafts(tiny_models: TinyModels, family: str) -> None:
    """States, keys and values kept across rounds give the same draft as a session that reads the whole text again."""
    engine = engine_of(tiny_models, family, "float64")
    session = host_session(engine, prompt_of(tiny_models, family), 60, BUSHY)
    session.prefill()
    for _ in range(10):
        fresh = host_session(engine, session.text, 60, BUSHY)
        fresh.prefill()
        tree, other = session.step(()).tree, fresh.step(()).tree
        assert (tree.tokens, tree.parents) == (other.tokens, other.parents)
        assert tree.path_logprobs == pytest.approx(other.path_logprobs, abs=1e-6)


def test_nothing_is_kept_of_mask_rows(tiny_models: TinyModels) -> None:
    session = host_session(engine_of(tiny_models, "neox"), prompt_of(tiny_models, "neox"), 40, BUSHY)
    session.prefill()
    for _ in range(4):
        session.step(())
        assert isinstance(session.proposer, ModelDrafter)
        passes = session.proposer.passes
        assert isinstance(passes, ParallelPasses)
        assert passes.cache.used == passes.cache.length
        assert passes.behind(session.text) == sum(len(rows) for rows in passes.unread)


@torch.inference_mode()
def test_a_text_read_in_parts_gives_the_guesses_of_one_pass(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, text = engine_of(tiny_models, "llama", "float64").pair, prompt_of(tiny_models, "llama")
    assert isinstance(pair.head, Head)
    found = []
    for at_once in (512, 3):
        monkeypatch.setattr(head_text, "AT_ONCE", at_once)
        states = LayerStates(pair.head.target_layers)
        target, passes = pair.target.tapped(states), ParallelPasses(pair.head, len(text), states)
        cache = target.new_cache(len(text))
        target.read(cache, text[:1])
        passes.read(text[:1])
        target.read(cache, text[1:-1])
        passes.commit(range(1, len(text) - 2))
        logits, positions = passes.after_latest(text, 7)
        tree = TokenTree([text[-1]])
        deeper, _ = passes.after_level(tree, [tree.add(0, 7, -1.0)])
        assert positions == [*range(len(text) - 6, len(text) + 1)]
        found.append(torch.cat([logits, deeper]))
    assert torch.allclose(found[0], found[1])
