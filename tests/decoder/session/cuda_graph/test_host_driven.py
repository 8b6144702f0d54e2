"""Host-driven passes with the weights of graphs compute the same rows as the modules."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.families.native import NativeModel, aligned
from decoder.forward.hf import ModuleForward
from decoder.forward.protocol import Forward
from decoder.forward.static.static_forward import static_forward
from decoder.methods.dynatree import DynaTree
from decoder.tree_rules import Rules
from tests.decoder.kept_rows import keys_values
from tests.decoder.makers import TinyModels, graph_slots, host_session
from tests.decoder.session.cuda_graph.matching import check, rounds_of
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device


def host(engine: Engine, *, draft: bool = False) -> NativeModel:
    form = static_forward(engine.pair.draft_model if draft else engine.pair.target)
    assert isinstance(form, NativeModel)
    return form


def grown(forward: Forward) -> list[Tensor]:
    """Logits of a text, of trees with a deepest path kept, and of a text beyond the first capacity; cached rows."""
    luck, cache = random.Random(4), forward.new_cache(9)
    found = [forward.read(cache, [5, 6, 7])]
    for size in (4, 1, 6):
        parents = [-1, *(luck.randrange(node) for node in range(1, size))]
        paths: list[list[int]] = []
        for node, parent in enumerate(parents):
            paths.append([*(paths[parent] if parent >= 0 else []), node])
        visible = np.zeros((size, size), dtype=np.bool_)
        for node, path in enumerate(paths):
            visible[node, path] = True
        positions = [cache.length + len(path) - 1 for path in paths]
        cache.reserve(cache.used + size)
        found.append(forward.forward(cache, [luck.randrange(200) for _ in parents], positions, visible))
        cache.keep([cache.length + node for node in max(paths, key=len)])
    cache.reserve(cache.used + 20)
    found.append(forward.read(cache, list(range(20, 40))))
    found.append(keys_values(cache, forward))
    return found


@pytest.mark.parametrize("family", ["neox", "llama", "neox-strange", "llama-strange"])
@torch.inference_mode()
def test_trees_and_texts_have_the_logits_keys_and_values_of_the_module(tiny_models: TinyModels, family: str) -> None:
    engine = tiny_models.engine(family, "float64")
    right, found = grown(ModuleForward(engine.pair.target.hf.module)), grown(host(engine))
    far = 1e-4 if family.startswith("llama") else 1e-10  # Llama's module computes norms in float32
    for one, other in zip(right, found, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max()) < far


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@torch.inference_mode()
def test_in_half_precision_they_are_those_of_graphs(tiny_models: TinyModels, dtype: str) -> None:
    engine = tiny_models.engine("neox", dtype)
    right, found = grown(ModuleForward(engine.pair.target.hf.module)), grown(host(engine))
    for one, other in zip(right, found, strict=True):
        assert one.dtype == other.dtype
        assert 0 <= float((one - other).abs().max()) < 0.1 * float(one.abs().max())


@pytest.mark.parametrize("rules", [None, DynaTree(), DynaTree(selection="best", n_max=7)], ids=["ar", "bfs", "best"])
def test_rounds_of_the_host_are_those_of_modules(tiny_models: TinyModels, rules: Rules | None) -> None:
    engine, rounds = tiny_models.engine("neox", "float64"), list[list[Any]]()
    for forwards in (
        (ModuleForward(engine.pair.target.hf.module), ModuleForward(engine.pair.draft_model.hf.module)),
        (host(engine), host(engine, draft=True)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for model, forward in zip((engine.pair.target, engine.pair.draft_model), forwards, strict=True):
                patch.setattr(model, "runs_by", forward)
            session = host_session(engine, [5, 6, 7, 8], 40, rules)
            session.prefill()
            rounds.append(rounds_of(session))
    for one, other in zip(*rounds, strict=True):
        check(one, other)


@torch.inference_mode()
def test_what_the_host_asks_for_is_computed_where_the_weights_are(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    with fake_cuda():
        moved = on_fake_device(engine)
        forward = graph_slots(moved).forward(moved.pair.target)
        assert isinstance(forward, NativeModel)
        cache = forward.new_cache(20)
        assert cache.store.is_cuda
        assert forward.read(cache, [1, 2, 3]).is_cuda
        assert forward.forward(cache, [4, 5, 6], [3, 4, 4], np.tri(3, dtype=np.bool_)).is_cuda
        cache.keep([3, 5])
    assert (cache.length, cache.used) == (5, 5)


@pytest.mark.parametrize(("rows", "wanted"), [(1, 8), (8, 8), (9, 16), (250, 256)])
def test_a_mask_is_as_wide_as_kernels_want_it(rows: int, wanted: int) -> None:
    assert aligned(rows) == wanted


def test_a_cache_takes_no_rotations_that_graphs_would_keep(tiny_models: TinyModels) -> None:
    forward = host(tiny_models.engine("neox"))
    before = dict(forward.tables)
    with torch.inference_mode():
        forward.new_cache(77)
    assert forward.tables == before
