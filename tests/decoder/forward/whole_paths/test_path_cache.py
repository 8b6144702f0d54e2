"""The module's own cache in the form for whole paths: accepted rows enter it once, rejected rows never."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.forward.whole_paths import PathCache, PathForward
from tests.decoder import recurrent_families
from tests.decoder.any_family import CONTEXT, PROMPT, engine_of
from tests.decoder.fixed_tree import FORK, FORKED, PLACES, plain
from tests.decoder.path_families import STATEFUL
from tests.decoder.path_families import target_of as new_target

target_of = functools.cache(new_target)


@pytest.fixture(params=["bloom", "gpt_neo", "minimax_m3_vl_text", "deepseek_v4", "rwkv", "xlstm"])
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@torch.inference_mode()
def begun(form: PathForward) -> PathCache:
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    return cache


@torch.inference_mode()
def goes_on(module: Any, form: PathForward, cache: PathCache, text: list[int]) -> bool:
    """Whether the cache equals that of a text: the next token has the logits of plain text."""
    assert cache.length == cache.used == len(text)
    right = plain(module, [*text, 9])[-1]
    return torch.allclose(form.read(cache, [9]), right, atol=1e-3 * float(right.abs().max()))


@contextmanager
def calls(module: Any) -> Iterator[list[Tensor]]:
    """Token ids of the module's passes."""
    passes: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, __, named: passes.append(named["input_ids"]), with_kwargs=True)
    yield passes
    handle.remove()


@torch.inference_mode()
@pytest.mark.parametrize("path", [[], [0], [0, 1], [0, 2], [0, 1, 3]])
def test_a_kept_path_enters_the_cache_and_nothing_else_does(family: str, path: list[int]) -> None:
    module = target_of(family)
    form = PathForward(module)
    cache = begun(form)
    form.forward(cache, FORKED, PLACES, FORK)
    cache.keep([20 + node for node in path])
    assert goes_on(module, form, cache, [*PROMPT, *(FORKED[node] for node in path)])


@torch.inference_mode()
def test_a_path_of_an_earlier_pass_may_be_kept(family: str) -> None:
    module = target_of(family)
    form = PathForward(module)
    cache = begun(form)
    form.forward(cache, FORKED[:3], PLACES[:3], FORK[:3, :3])
    form.forward(cache, FORKED[3:], PLACES[3:], FORK[3:])
    cache.keep([20, 22])
    assert goes_on(module, form, cache, [*PROMPT, 5, 7])


@torch.inference_mode()
@pytest.mark.parametrize("length", [20, 19, 3, 0])
def test_a_text_may_be_cut(family: str, length: int) -> None:
    module = target_of(family)
    form = PathForward(module)
    cache = begun(form)
    cache.cut(length)
    assert goes_on(module, form, cache, PROMPT[:length])


@torch.inference_mode()
def test_an_accepted_path_is_read_again_only_where_the_cache_cannot_be_shortened(family: str) -> None:
    module = target_of(family)
    form = PathForward(module)
    cache = begun(form)
    form.forward(cache, FORKED, PLACES, FORK)
    cache.keep([20, 22])
    with calls(module) as passes:
        form.forward(cache, [9], [22], np.ones((1, 1), dtype=np.bool_))
    assert [ids.tolist() for ids in passes] == ([[[5, 7]]] if family in STATEFUL else []) + [[[9]]]


@torch.inference_mode()
def test_a_whole_path_is_never_read_again(family: str) -> None:
    module = target_of(family)
    form = PathForward(module)
    cache = begun(form)
    form.forward(cache, FORKED, PLACES, FORK)
    cache.keep([20, 21, 23])
    with calls(module) as passes:
        form.forward(cache, [9], [23], np.ones((1, 1), dtype=np.bool_))
    assert [ids.tolist() for ids in passes] == [[[9]]]


@torch.inference_mode()
def test_a_cache_counts_the_bytes_of_the_modules_own_one(family: str) -> None:
    form = PathForward(target_of(family))
    assert form.new_cache(CONTEXT).nbytes == 0
    assert begun(form).nbytes > 0


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
