"""Modules that compute whole paths, in a cache of their own: accepted rows enter it once, rejected rows never; what
they report, and what refuses them.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, MistralConfig

from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import FAMILIES as KNOWN
from decoder.forward.layer_kinds import takes_paths
from decoder.forward.whole_paths import PathCache, PathForward, in_batch, keeps_all, nbytes, one_of, record, shortened
from decoder.models.compatibility import probe
from decoder.run import decoding_path
from decoder.run.decoding_path import PATHS, expected_path
from tests.decoder import recurrent_families
from tests.decoder.any_family import CONTEXT, PROMPT, engine_of
from tests.decoder.fixed_tree import FORK, FORKED, PLACES, plain
from tests.decoder.path_families import FAMILIES, FURTHER, STATEFUL, USUAL
from tests.decoder.path_families import target_of as new_target

target_of = functools.cache(new_target)


@pytest.fixture(params=["bloom", "gpt_neo", "minimax_m3_vl_text", "deepseek_v4", "rwkv", "xlstm"])
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@dataclass
class Begun:
    """A module and a cache of the prompt."""

    module: Any
    form: PathForward
    cache: PathCache

    @torch.inference_mode()
    def goes_on(self, text: list[int]) -> bool:
        """Whether the cache equals that of a text: the next token has the logits of plain text."""
        assert self.cache.length == self.cache.used == len(text)
        right = plain(self.module, [*text, 9])[-1]
        return torch.allclose(self.form.read(self.cache, [9]), right, atol=1e-3 * float(right.abs().max()))


@pytest.fixture
@torch.inference_mode()
def begun(family: str) -> Begun:
    form = PathForward(target_of(family))
    cache = form.new_cache(CONTEXT)
    assert cache.nbytes == 0
    form.read(cache, PROMPT)
    assert cache.nbytes > 0
    return Begun(target_of(family), form, cache)


@contextmanager
def calls(module: Any) -> Iterator[list[Tensor]]:
    """Token ids of the module's passes."""
    passes: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, __, named: passes.append(named["input_ids"]), with_kwargs=True)
    yield passes
    handle.remove()


@torch.inference_mode()
@pytest.mark.parametrize("length", [20, 19, 3, 0])
def test_a_text_may_be_cut(begun: Begun, length: int) -> None:
    begun.cache.cut(length)
    assert begun.goes_on(PROMPT[:length])


@torch.inference_mode()
@pytest.mark.parametrize(("kept", "again"), [([20, 22], [[[5, 7]]]), ([20, 21, 23], [])])
def test_an_accepted_path_is_read_again_only_where_the_cache_cannot_be_shortened(
    begun: Begun, family: str, kept: list[int], again: list[list[list[int]]]
) -> None:
    """A whole path is never read again."""
    begun.form.forward(begun.cache, FORKED, PLACES, FORK)
    begun.cache.keep(kept)
    with calls(begun.module) as passes:
        begun.form.forward(begun.cache, [9], [20 + len(kept)], np.ones((1, 1), dtype=np.bool_))
    assert [ids.tolist() for ids in passes] == [*(again if family in STATEFUL else []), [[9]]]


@pytest.mark.parametrize("made", [new_target, recurrent_families.target_of])
def test_costs_are_measured_after_a_text_of_any_length(made: Callable[[str], Any]) -> None:
    class Clock:
        seconds = 0.0

        def now(self) -> float:
            self.seconds += 0.1
            return self.seconds

    module = made("bloom" if made is new_target else "lfm2")
    costs = measure_costs(engine_of(module).pair, 20, Clock())
    assert costs.plain.seconds(1) == pytest.approx(0.1)


WINDOW = 4
ROWS = torch.randn(3, 2, 16, 8, generator=torch.Generator().manual_seed(1))
"""Keys of three texts whose first 12 tokens are equal."""
ROWS[:, :, :12] = ROWS[0, :, :12].clone()


def begun_module(window: int | None) -> DynamicCache:
    """A cache of the first 12 tokens."""
    cache = DynamicCache(config=MistralConfig(num_hidden_layers=1, sliding_window=window, max_position_embeddings=64))
    cache.update(ROWS[:1, :, :12], ROWS[:1, :, :12], 0)
    record(cache)
    assert shortened(cache, 0)
    return cache


def seen_next(cache: Any) -> Tensor:
    """Keys that one further token attends to."""
    keys, _ = cache.update(torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8), 0)
    seen: Tensor = keys
    return seen


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize(("number", "count"), [(0, 0), (1, 0), (2, 1), (1, 4)])
def test_a_copy_of_one_text_without_its_last_tokens(number: int, count: int, window: int | None) -> None:
    cache = begun_module(window)
    batch = in_batch(cache, 3)
    batch.update(ROWS[:, :, 12:], ROWS[:, :, 12:], 0)
    one = one_of(batch, number)
    assert shortened(one, count)
    right = ROWS[number : number + 1, :, : 16 - count]
    assert torch.equal(seen_next(one)[:, :, :-1], right if window is None else right[:, :, 1 - window :])
    assert torch.equal(seen_next(cache)[:, :, :-1], ROWS[:1, :, (0 if window is None else 13 - window) : 12])


def test_only_a_cache_without_windows_can_be_shortened_to_any_length() -> None:
    assert keeps_all(begun_module(None))
    assert not keeps_all(begun_module(WINDOW))


def test_states_are_copied_and_cannot_be_shortened() -> None:
    states = [torch.ones(1, 4), torch.zeros(1, 4)]
    batch = in_batch(states, 2)
    batch[0][1] += 1
    assert [state.shape[0] for state in batch] == [2, 2]
    assert torch.equal(one_of(batch, 1)[0], torch.full((1, 4), 2.0))
    assert torch.equal(states[0], torch.ones(1, 4))
    assert shortened(states, 0)
    assert not shortened(states, 1)
    assert nbytes(states) == 2 * 4 * 4


def test_loading_leaves_the_weights_as_they_are() -> None:
    """RWKV divides weights in place by a configuration value, so no other value of it is tried."""
    module = new_target("rwkv")
    before = plain(module, PROMPT)
    probe(LanguageModel.of_module(module, "rwkv"))
    assert torch.equal(plain(module, PROMPT), before)


def test_the_known_families_are_those_of_the_tests() -> None:
    assert {*KNOWN} == {*USUAL, *FURTHER}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_tells_whole_paths_where_the_type_or_alibi_does(family: str) -> None:
    assert takes_paths(target_of(family).config.get_text_config()) == (family != "big_bird")


def test_rounds_are_told_to_be_slower() -> None:
    engine = engine_of(target_of("bloom"))
    assert decoding_path.decoding_path(engine).reason == PATHS
    config = target_of("bloom").config
    assert expected_path({"target": config, "draft": config}, torch.device("cpu"), exact=False).reason == PATHS
