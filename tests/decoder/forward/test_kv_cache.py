"""The engine's keys and values equal those of a fresh forward pass, in one tensor or in one per part, and take the
memory that a configuration says.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig

from decoder import DynaTree, Fixed, RunConfig
from decoder.forward.hf import traits_of
from decoder.forward.hf_module import HfModule
from decoder.forward.kv_cache import KEYS, VALUES, KvCache
from decoder.forward.layer_kinds import cache_bytes
from decoder.forward.whole_paths import PathCache
from decoder.methods import chosen
from tests.decoder.any_family import PROMPT as IDS
from tests.decoder.kept_rows import keys_values
from tests.decoder.makers import TinyModels
from tests.decoder.survey.results import read
from tests.decoder.survey.tiny_models import FACTORS, tiny_config, tiny_module
from tests.tiny import FAMILIES

PROMPT = "The tree grows"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)
CONFIGS = {
    "dynatree": RunConfig(("dynatree",), 24, dynatree=BUSHY),
    "dynatree best": RunConfig(
        ("dynatree",), 24, dynatree=DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=9, selection="best")
    ),
    "dynatree as in the paper": RunConfig(("dynatree",), 24, dynatree=DynaTree()),
    "alg1": RunConfig(("alg1",), 24, dynatree=BUSHY),
    "fixed": RunConfig(("fixed",), 24, fixed=Fixed(tau=0.01, branching=3, n_max=40)),
    "linear": RunConfig(("linear",), 24),
    "ar": RunConfig(("ar",), 24),
}

PAIRS = (*FAMILIES, "begin", "neox-strange")
CASES = [
    pytest.param(name, config, list(TOLERANCE)[(row + column) % 2], id=f"{name}-{method}")
    for row, name in enumerate(PAIRS)
    for column, (method, config) in enumerate(CONFIGS.items())
]
"""Each pair with each method, and both dtypes with each of them in turn."""


def fresh(module: Any, text: list[int]) -> torch.Tensor:
    """Keys and values of a plain forward pass; shape (layers, 2, heads, positions, width)."""
    with torch.inference_mode():
        layers = module(torch.tensor([text]), use_cache=True).past_key_values.layers
    return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in layers])


def largest_error(kept: torch.Tensor, right: torch.Tensor) -> float:
    assert kept.shape == right.shape
    return float((kept - right).abs().max())


@pytest.mark.parametrize(("name", "config", "dtype"), CASES)
def test_committed_keys_and_values_are_those_of_a_fresh_forward(
    tiny_models: TinyModels, name: str, config: RunConfig, dtype: str
) -> None:
    pair, text = tiny_models.pair(name), tiny_models.prompt_tokens(name, PROMPT)
    kept: dict[str, list[torch.Tensor]] = {"target": [], "draft": []}
    (method,) = chosen(config.methods)
    engine = tiny_models.engine(name, dtype)
    session: Any = method.open(engine, text, config)
    session.prefill()
    finished = None
    while not finished:
        outcome = session.step(())
        text = text + outcome.committed
        finished = outcome.finished
        # The last committed token is the next root and not yet read, except in Algorithm 1, which reads it at once.
        known = len(text) if method.name == "alg1" else len(text) - 1
        kept["target"].append(keys_values(session.target_cache, engine.pair.target.runs_by))
        assert kept["target"][-1].shape[3] == known
        if method.name == "alg1" or session.proposer:
            drafter = session.drafter if method.name == "alg1" else session.proposer
            kept["draft"].append(keys_values(drafter.passes.cache, engine.pair.draft_model.runs_by))
            assert kept["draft"][-1].shape[3] in (len(text) - 1, len(text) - 2) or finished
    # A row depends on the rows before it alone, so the rows of the whole text are those of its beginnings too.
    for path, rounds in ((pair.target, kept["target"]), (pair.draft, kept["draft"])):
        right = fresh(tiny_models.plain(path, dtype), text)
        worst = max((largest_error(rows, right[..., : rows.shape[3], :]) for rows in rounds), default=0.0)
        assert worst < TOLERANCE[dtype]


CAPACITY = 6


def empty(layers: int = 1) -> KvCache:
    return KvCache(torch.zeros((layers, 2, 0, CAPACITY, 0)))


def rows(numbers: list[int], heads: int, width: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[None, :, None].expand(heads, -1, width).clone()


def passed(cache: KvCache, numbers: list[int]) -> dict[str, Any]:
    """Row numbers of each part that a pass with these new rows reads; values are narrower than keys."""
    read = {
        KEYS: cache.append_part((KEYS, 0), rows(numbers, 1, 3), 1),
        VALUES: cache.append_part((VALUES, 0), rows(numbers, 2, 2), 1),
        "indexer": cache.append_part(("indexer", 0), rows(numbers, 1, 4)[0], 0),
    }
    cache.settle()
    cache.used += len(numbers)
    return {what: part.reshape(-1, part.shape[-2], part.shape[-1])[0, :, 0].tolist() for what, part in read.items()}


def in_each(numbers: list[int]) -> dict[str, list[int]]:
    return {KEYS: numbers, VALUES: numbers, "indexer": numbers}


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_kept_in_each_part(seed: int) -> None:
    """The expected rows are those of plain list operations; the cache grows on the way."""
    luck, cache, right, last = random.Random(seed), empty(), list[int](), 0
    for _ in range(30):
        new = range(last + 1, last + luck.randint(2, 4))
        if cache.used:
            cache.reserve(cache.used + len(new))
        right, last = [*right, *new], new[-1]
        assert passed(cache, [*new]) == in_each(right)
        drafted = range(cache.length, cache.used)
        kept = sorted(luck.sample(drafted, luck.randint(0, len(drafted))))
        right = right[: cache.length] + [right[row] for row in kept]
        cache.keep(kept)
        assert cache.length == cache.used == len(right)


def test_positions_are_kept_with_their_rows() -> None:
    cache = empty()
    cache.positions = torch.arange(CAPACITY)
    passed(cache, [1, 2, 3, 4])
    cache.positions[2:4] = 1
    cache.keep([0, 3])
    assert cache.positions[:2].tolist() == [0, 1]
    cache.reserve(8)
    assert cache.positions[4:].tolist() == [4, 5, 6, 7]


def test_keys_and_values_of_one_shape_in_all_layers_share_one_tensor() -> None:
    cache = empty(layers=2)
    for layer in range(2):
        for what in (KEYS, VALUES):
            cache.append_part((what, layer), rows([1, 2], 2, 4), 1)
    cache.settle()
    assert not cache.parts
    assert cache.store.shape == (2, 2, 2, CAPACITY, 4)
    assert cache.store[1, 1, 0, :3, 0].tolist() == [1, 2, 0]


def test_a_layer_without_keys_takes_no_memory() -> None:
    cache = empty(layers=2)
    for what in (KEYS, VALUES):
        cache.append_part((what, 0), rows([1], 2, 4), 1)
    cache.settle()
    assert cache.nbytes == 2 * CAPACITY * 2 * 4 * torch.float32.itemsize


def test_a_part_that_the_first_pass_lacked_is_refused() -> None:
    cache = empty()
    passed(cache, [1])
    with pytest.raises(ValueError, match="layer 1 has keys that it did not have in the first pass"):
        cache.append_part((KEYS, 1), rows([2], 1, 3), 1)


ITEM_BYTES = 4
SEVERAL = (
    "llama", "falcon", "gpt_bigcode", "gemma4_text", "gemma3n_text", "deepseek_v3", "hy_v4", "dots3_note",
    "mimo_v2_flash", "dory", "inkling_text", "inkling2_loop_text", "qwen4_exp_text", "zamba2", "bloom",
    "minimax_m3_vl_text",
)  # fmt: skip
"""Families with their own configuration names for heads, widths, or the number of cached layers."""
COMPRESSED = {"deepseek_v4"}
"""Families that cache less than one row per token; the computed size is larger than the allocated one."""
STATES_ALONE = {"rwkv", "xlstm"}
"""Families whose own caches have no rows; their states do not grow with the text."""


@torch.inference_mode()
def computed_and_allocated(family: str) -> tuple[int, int]:
    """Computed and allocated bytes of the prompt's rows."""
    config = tiny_config(family)
    module = tiny_module(family, config, FACTORS[0])
    form = HfModule(traits_of(module), module=module).forward_form()
    cache = form.new_cache(len(IDS))
    form.read(cache, IDS)
    computed, _ = cache_bytes(config.get_text_config(), len(IDS), ITEM_BYTES)
    if isinstance(cache, PathCache):
        return computed, cache.nbytes
    return computed, sum(rows.nbytes for rows in ([rows for rows, _ in cache.parts.values()] or [cache.store]))


@pytest.mark.parametrize("family", SEVERAL)
def test_a_text_takes_the_memory_that_its_configuration_says(family: str) -> None:
    computed, allocated = computed_and_allocated(family)
    assert computed == allocated > 0


@pytest.mark.soak
def test_so_it_is_for_every_family_that_the_survey_decodes() -> None:
    families = {trial.family for trial in read().trials if trial.route} - COMPRESSED - STATES_ALONE
    wrong = {family: found for family in sorted(families) if len(set(found := computed_and_allocated(family))) > 1}
    assert len(families) > 100
    assert not wrong


@pytest.mark.parametrize("family", sorted(STATES_ALONE))
def test_states_do_not_grow_with_the_text(family: str) -> None:
    assert cache_bytes(tiny_config(family).get_text_config(), 1000, ITEM_BYTES) == (0, 0)


def test_the_memory_of_all_rows_is_told_beside_that_of_ring_buffers() -> None:
    """A row has a key and a value of two heads with 4 numbers of 2 bytes each."""
    shape = AutoConfig.for_model(
        "mistral", sliding_window=8, layer_types=["sliding_attention", "full_attention"], num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, num_hidden_layers=2, hidden_size=16,
    )  # fmt: skip
    row = 2 * 2 * 4 * 2
    assert cache_bytes(shape, 40, 2) == (2 * 40 * row, (40 + 8) * row)
