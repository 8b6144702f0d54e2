"""In exact mode a row has the same bits in every pass, so near ties are always decided alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BloomConfig

from decoder import Fixed, Linear, RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, PairError
from decoder.forward.batch_invariant import (
    CUDA_ROWS,
    PADDED_ROWS,
    UNPADDED_ROWS,
    Exact,
    exactly,
    padded,
    parts,
)
from decoder.forward.exact_attention import ExactModule, _of_module
from decoder.forward.families.model import attend
from decoder.forward.hf import ModuleForward
from decoder.forward.language_model import LanguageModel
from decoder.forward.protocol import Forward
from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.models.checkpoints import EMBEDDED_TARGET, load_model
from dynatui.prompts import embedded
from tests import tiny
from tests.decoder import family_models as native_models
from tests.decoder.kept_rows import committed
from tests.decoder.makers import TinyModels, play
from tests.decoder.random_trees import Tree

HALF = ("bfloat16", "float16")
DTYPES = (*HALF, "float32")
NATIVE = (
    *("neox", "neox, odd heads", "llama", "llama, one head for all"),
    *("mistral, windows of 8", "qwen2, windows in half of its layers"),
)
THROUGH_MODULES = ("neox", "llama", "qwen3", "gpt2")
OWN = ("ar", "dynatree", "linear", "fixed", "alg1")
TREES = RunConfig(OWN, 24, dynatree=DynaTree(rho_stop=0.02), linear=Linear(7), fixed=Fixed(4, 2))


def native_model(name: str, dtype: str) -> LanguageModel:
    return LanguageModel.of_module(native_models.made(name, getattr(torch, dtype)), name)


def torch_model(name: str, dtype: str) -> LanguageModel:
    """A native model that torch computes."""
    module = native_models.made(name, getattr(torch, dtype))
    return LanguageModel.of_module(module, name).with_forward(native_models.native_of(module))


def module_model(name: str, dtype: str) -> LanguageModel:
    """A model that runs as a Hugging Face module even if a native form exists."""
    module = tiny.build(tiny.FAMILIES[name](), seed=1).to(getattr(torch, dtype))
    return LanguageModel.of_module(module, name).with_forward(ModuleForward(module))


def exact_module_model(name: str, dtype: str) -> LanguageModel:
    model = module_model(name, dtype)
    model._native = None
    return model.exact()


def at_random(seed: int, text: int, nodes: int) -> Tree:
    """A tree of one root and long paths after a random text of this length."""
    return Tree.at_random(seed, np.random.default_rng(seed).integers(0, 90, text).tolist(), nodes, near=5)


@torch.inference_mode()
def as_tree(model: LanguageModel, grown: Tree) -> tuple[Tensor, Tensor]:
    """Logits, and keys and values, of all nodes in one pass."""
    cache = model.new_cache(len(grown.text) + len(grown.tokens))
    model.read(cache, grown.text)
    logits = model.forward(cache, grown.tokens, grown.positions, grown.visible)
    assert cache.used == len(grown.text) + len(grown.tokens)
    cache.keep(range(len(grown.text), cache.used))
    return logits, committed(cache)[..., len(grown.text) :, :]


@torch.inference_mode()
def as_text(model: LanguageModel, grown: Tree) -> dict[int, tuple[Tensor, Tensor]]:
    """Logits, and keys and values, of each node if its path is decoded token by token.

    In the order of the sorted paths, the tokens above a node are always those that the cache has at their places.
    """
    cache: Any = model.new_cache(len(grown.text) + len(grown.tokens))
    model.read(cache, grown.text)
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for path in sorted(grown.paths):
        node, at = path[-1], len(grown.text) + len(path) - 1
        cache.length = cache.used = at
        logits = model.forward(cache, [grown.tokens[node]], [at], np.ones((1, 1), dtype=np.bool_))[0]
        cache.keep([at])
        found[node] = (logits, committed(cache)[..., -1, :].clone())
    return found


def differing(model: LanguageModel, grown: Tree) -> list[int]:
    """Nodes whose logits, keys or values differ in bits from those of plain text."""
    logits, kept = as_tree(model, grown)
    return [
        node
        for node, (scores, rows) in as_text(model, grown).items()
        if not torch.equal(scores, logits[node]) or not torch.equal(rows, kept[..., node, :])
    ]


SHAPES = [(1, 2), (2, 9), (37, 25), (150, 38)]
"""Numbers of text tokens and tree nodes; one pass has at most 16 or 8 rows, depending on the model."""


def assert_exact(model: LanguageModel) -> None:
    for seed, (text, nodes) in enumerate(SHAPES):
        assert not differing(model, at_random(seed, text, nodes))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*zip(NATIVE, cycle(DTYPES)), *(("llama", dtype) for dtype in HALF), ("mistral, windows of 8", "float32")],
)
def test_native_nodes_have_the_bits_of_plain_text(name: str, dtype: str) -> None:
    assert_exact(native_model(name, dtype).exact())


@pytest.mark.parametrize(("name", "dtype"), zip(THROUGH_MODULES, cycle(HALF)))
def test_nodes_that_a_module_computes_have_the_bits_of_plain_text(name: str, dtype: str) -> None:
    assert_exact(exact_module_model(name, dtype))


@pytest.mark.parametrize(("make", "dtype"), [(torch_model, "float32"), *((module_model, dtype) for dtype in HALF)])
@pytest.mark.parametrize("name", ["neox", "llama"])
def test_otherwise_they_have_not(make: Callable[[str, str], LanguageModel], name: str, dtype: str) -> None:
    """Otherwise the tests above would prove nothing."""
    assert differing(make(name, dtype), at_random(2, 37, 25))


@pytest.mark.parametrize("dtype", HALF)
def test_long_texts_change_nothing(dtype: str) -> None:
    assert not differing(
        load_model(str(EMBEDDED_TARGET), torch.device("cpu"), getattr(torch, dtype)).exact(),
        at_random(1, 1000 if dtype == "bfloat16" else 300, 12),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_what_is_attended_to_is_rounded_once_to_the_model_s_dtype(dtype: torch.dtype) -> None:
    """In a finer dtype, the order of the keys would affect the bits again."""
    queries, keys, values = (torch.rand(1, 2, rows, 8).to(dtype) for rows in (3, 5, 5))
    found, _ = _of_module(torch.nn.Module(), queries, keys, values, torch.zeros(1, 1, 3, 5), scaling=1.0)
    right = torch.softmax(queries.double() @ keys.double().mT, -1) @ values.double()
    assert found.dtype is dtype
    assert torch.equal(found[0].transpose(0, 1), right[0].to(dtype))


def test_every_query_of_a_group_looks_where_its_row_may() -> None:
    """With a wrong mask the trial would find that a row's place matters, and every pass would have one row."""
    exact = exact_module_model("llama", "bfloat16").runs_by
    assert isinstance(exact, Exact)
    plain, grown = module_model("llama", "bfloat16"), at_random(6, 20, 8)
    found = [as_tree(model, grown)[0].float() for model in (plain.with_forward(exact.inner), plain)]
    assert float((found[0] - found[1]).abs().max()) < 0.1 * float(found[1].abs().max())


@pytest.mark.parametrize("groups", [1, 8])
def test_passes_as_wide_as_on_a_gpu_are_exact_too(groups: int) -> None:
    config = tiny.FAMILIES["llama"](hidden_size=64, num_attention_heads=8, num_key_value_heads=8 // groups)
    module = tiny.build(config, seed=1).bfloat16()
    exact = exactly(ExactModule(module), tiny.VOCABULARY, cuda=True)
    assert not differing(LanguageModel.of_module(module, "wide").with_forward(exact), at_random(5, 37, 70))


def test_a_node_is_as_exact_where_each_round_brings_some_more() -> None:
    """Nodes of later passes attend to nodes of earlier passes."""
    model = native_model("llama", "bfloat16").exact()
    grown = at_random(3, 20, 30)
    whole, _ = as_tree(model, grown)
    cache = model.new_cache(50)
    model.read(cache, grown.text)
    found = []
    for start, stop in ((0, 1), (1, 7), (7, 25), (25, 30)):
        part = slice(start, stop)
        rows = grown.tokens[part], grown.positions[part], grown.visible[part, :stop]
        found.append(model.forward(cache, *rows))
    assert torch.equal(torch.cat(found), whole)


# Sizes of passes that agree


@dataclass
class Text:
    """A cache that stores tokens and positions instead of keys and values."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    """Token and position."""
    length: int = 0
    used: int = 0

    def keep(self, rows: Sequence[int]) -> None:
        kept = [self.rows[row] for row in rows]
        self.rows = self.rows[: self.length] + kept
        self.length = self.used = len(self.rows)

    def reserve(self, capacity: int) -> None:
        """Does nothing; the capacity is unlimited."""


Quirk = Callable[[int, int, int], float]
"""(rows of the pass, place of the row in it, first cache row of the pass) -> error of the row's logits."""


@dataclass(frozen=True)
class Calculated(Forward):
    """A forward whose logits encode the tokens that a row sees, plus an error that a test chooses."""

    quirk: Quirk = lambda _rows, _place, _first: 0.0
    digits: torch.dtype = torch.float32
    touchy: Callable[[int, int], float] = lambda _rows, _token: 0.0
    """(rows of the pass, token) -> additional error."""
    sizes: list[int] = field(default_factory=list)
    """Number of rows of each pass."""

    def new_cache(self, capacity: int) -> Any:
        del capacity
        return Text()

    def forward(
        self, cache: Any, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Tensor:
        self.sizes.append(len(tokens))
        first, recent = cache.used, visible.shape[1]
        cache.rows = [*cache.rows[:first], *zip(tokens, positions, strict=True)]
        cache.used = len(cache.rows)
        logits = []
        for place in range(len(tokens)):
            shown = (row for row, seen in zip(cache.rows[-recent:], visible[place], strict=True) if seen)
            seen = sorted([*cache.rows[: cache.used - recent], *shown], key=lambda row: row[1])
            score = sum(token * 0.9**position for token, position in seen) / 3
            error = self.quirk(len(tokens), place, first) + self.touchy(len(tokens), tokens[place])
            logits.append([score + error, 1 / (1 + score)])
        return torch.tensor(logits, dtype=torch.float64).to(self.digits).float()

    def read(self, cache: Any, tokens: Sequence[int]) -> Tensor:
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits


def found_sizes(*, cuda: bool = False, **about: Any) -> tuple[int, ...]:
    return exactly(Calculated(**about), 500, cuda=cuda).sizes


ALL = tuple(range(1, UNPADDED_ROWS + 1))
SIZES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "nothing is padded where every number of rows agrees": ({}, ALL),
    "one row differs": ({"quirk": lambda rows, _place, _first: float(rows == 1)}, ALL[1:]),
    "most numbers differ": ({"quirk": lambda rows, _place, _first: float(rows % 4)}, (4, 8, 12, 16)),
    "all numbers differ": ({"quirk": lambda rows, _place, _first: float(rows)}, (UNPADDED_ROWS,)),
    "one row agreed by chance": ({"quirk": lambda rows, _, first: float(rows == 1 and first > 3)}, (UNPADDED_ROWS,)),
    "some places matter": ({"quirk": lambda _rows, place, _first: float(place > 5)}, (1, 2, 3, 4)),
    "every place matters": ({"quirk": lambda _rows, place, _first: float(place)}, (1,)),
    "bfloat16 hides differences": ({"digits": torch.bfloat16}, (PADDED_ROWS,)),
    "float16 hides differences": ({"digits": torch.float16}, (PADDED_ROWS,)),
    "a GPU computes as many rows as cost nothing": ({"cuda": True}, (CUDA_ROWS,)),
    "a GPU in float16": ({"cuda": True, "digits": torch.float16}, (CUDA_ROWS,)),
}


@pytest.mark.parametrize(("about", "sizes"), SIZES.values(), ids=SIZES)
def test_a_pass_has_a_number_of_rows_that_agrees(about: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert found_sizes(**about) == sizes


def test_a_number_of_rows_that_differs_for_some_tokens_alone_is_left_out() -> None:
    widest: list[int] = []

    def touchy(rows: int, token: int) -> float:
        if rows == UNPADDED_ROWS and len(widest) < UNPADDED_ROWS:
            widest.append(token)
        return float(rows == 5 and token == widest[-1])

    assert found_sizes(touchy=touchy) == tuple(rows for rows in ALL if rows != 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_whose_widths_fill_no_register_is_exact_too(dtype: str) -> None:
    """Its activation computes the last few numbers of a pass differently; which numbers depends on the rows."""
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 98}
    module = tiny.build(tiny.FAMILIES["neox"](**shape, use_parallel_residual=False), seed=2).to(getattr(torch, dtype))
    assert_exact(LanguageModel.of_module(module, "narrow").exact())


def test_a_model_whose_logits_depend_on_where_keys_lie_is_refused() -> None:
    with pytest.raises(PairError, match=r"draft tree differ in bits from those for plain text.*leave out --exact"):
        found_sizes(quirk=lambda _rows, _place, first: first * 1e-3)


# Parts and padding


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"),
    [
        (1, (1, 2, 3), [(0, 1, 1)]),
        (3, (2, 4), [(0, 3, 4)]),
        (4, (2, 4), [(0, 4, 4)]),
        (5, (2, 4), [(0, 4, 4), (4, 5, 2)]),
        (17, (8,), [(0, 8, 8), (8, 16, 8), (16, 17, 8)]),
    ],
)
def test_more_rows_go_in_parts_and_fewer_are_padded(
    rows: int, sizes: tuple[int, ...], expected: list[tuple[int, int, int]]
) -> None:
    assert list(parts(rows, sizes)) == expected


def test_padding_sees_itself_and_is_seen_by_nobody() -> None:
    visible = np.array([[1, 1, 0], [1, 0, 1]], dtype=np.bool_)
    wider = padded(visible, 2).astype(int)
    assert wider.tolist() == [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]


def test_a_pass_has_no_other_size() -> None:
    inner = Calculated()
    exact = Exact(inner, (3, 5))
    cache = exact.new_cache(100)
    for rows in (1, 3, 4, 5, 6, 13):
        exact.forward(cache, [7] * rows, [0] * rows, np.eye(rows, dtype=np.bool_))
    assert inner.sizes == [3, 3, 5, 5, 5, 3, 5, 5, 3]
    assert cache.used == 32


@pytest.mark.parametrize("make", [native_model, exact_module_model])
@torch.inference_mode()
def test_padding_finds_room_where_the_cache_is_full(make: Callable[[str, str], LanguageModel]) -> None:
    model = make("llama", "bfloat16")
    inner = model.runs_by.inner if isinstance(model.runs_by, Exact) else model.runs_by
    small, large = Exact(inner, (8,)), Exact(inner, (8,))
    text = list(range(20))
    kept = []
    for forward, room in ((small, 0), (large, 100)):
        cache = inner.new_cache(20 + room)
        forward.read(cache, text[:11])
        for at in range(11, 20):
            forward.forward(cache, [text[at]], [at], np.ones((1, 1), dtype=np.bool_))
            cache.keep([at])
        kept.append(committed(cache))
    assert torch.equal(*kept)


# Methods


@dataclass
class Decoded:
    """Texts and caches of the methods after a prompt."""

    tokens: dict[str, list[int]]
    kept: dict[str, Tensor]
    """The target's keys and values after the last round."""


def decoded(engine: Engine, ids: Sequence[int], config: RunConfig) -> Decoded:
    found = Decoded({}, {})
    for name in config.methods:
        session: Any = METHODS[name].open(engine, ids, config)
        session.prefill()
        while not session.step(()).finished:
            pass
        found.tokens[name] = session.text[len(ids) :]
        found.kept[name] = committed(session.target_cache)
    return found


def assert_alike(found: Decoded) -> None:
    assert {name: tokens for name, tokens in found.tokens.items() if tokens != found.tokens["ar"]} == {}
    for name, kept in found.kept.items():
        rows = min(kept.shape[3], found.kept["ar"].shape[3])
        assert torch.equal(kept[..., :rows, :], found.kept["ar"][..., :rows, :]), name


@pytest.fixture(scope="module")
def exact(tiny_models: TinyModels) -> Callable[[str, str], Engine]:
    """A function that loads a tiny pair in exact mode by name and dtype."""

    @cache
    def loaded(name: str, dtype: str) -> Engine:
        pair = tiny_models.pair(name)
        return load_pair(str(pair.target), str(pair.draft), device="cpu", dtype=dtype, exact=True)

    return loaded


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("neox", "bfloat16"), ("qwen3", "float16"), ("gpt2", "bfloat16")),
        *(("neox-strange", "float16"), ("windows", "bfloat16"), ("half-windows", "float16")),
    ],
)
def test_all_methods_write_the_same_and_keep_the_same_bits(
    tiny_models: TinyModels, exact: Callable[[str, str], Engine], name: str, dtype: str
) -> None:
    assert exact(name, dtype).exact
    for prompt in ("The tree grows", "T") if name == "neox" else ("T",):
        ids = tiny_models.prompt_tokens(name, prompt)
        assert_alike(decoded(exact(name, dtype), ids, TREES))


@pytest.mark.parametrize("name", ["neox", "gpt2"])
def test_a_text_that_fills_the_context_ends_as_plain_decoding_ends(
    exact: Callable[[str, str], Engine], name: str
) -> None:
    """Padding needs no positions beyond the context and no rows beyond the cache."""
    ids = np.random.default_rng(4).integers(0, 90, tiny.CONTEXT - 20).tolist()
    found = decoded(exact(name, "bfloat16"), ids, replace(TREES, max_new_tokens=20))
    assert len(found.tokens["ar"]) == 20
    assert_alike(found)


def test_the_embedded_pair_is_exact_as_it_runs_by_itself() -> None:
    engine = load_pair(device="cpu", dtype="bfloat16", exact=True)
    for prompt in embedded()[:1]:
        assert_alike(decoded(engine, engine.pair.tokenizer(prompt).input_ids, RunConfig(OWN, 16)))


# Reports and refusals


def test_a_run_says_whether_it_is_exact_and_hf_is_judged_as_ever(
    tiny_models: TinyModels, exact: Callable[[str, str], Engine]
) -> None:
    race = play(exact("gpt2", "bfloat16"), RunConfig(("ar", "dynatree", "hf"), 40))
    inexact = play(tiny_models.engine("neox"), RunConfig(("ar",), 1))
    assert [getattr(each.events[0], "exact", None) for each in (race, inexact)] == [True, False]
    assert race.figures("dynatree").identical_to_ar
    assert race.figures("hf").identical_to_ar or race.figures("hf").near_tie


def test_float64_leaves_nothing_to_round_to(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    with pytest.raises(ConfigError, match=r"--exact .* float64 .*; give --dtype and --draft-dtype float32, bfloat16"):
        load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float64", exact=True)
    with pytest.raises(ConfigError, match="leave out --exact"):
        tiny_models.loaded(pair, "float64").batch_invariant()


def test_a_family_with_an_attention_of_its_own_is_refused() -> None:
    module = tiny.build(BloomConfig(hidden_size=32, n_layer=1, n_head=2, vocab_size=96), seed=1)
    with pytest.raises(PairError, match="BloomForCausalLM has its own attention function"):
        ExactModule(module.bfloat16())


def test_for_everybody_else_a_module_attends_as_before() -> None:
    model = exact_module_model("llama", "bfloat16")
    assert model.hf.module.config._attn_implementation == "sdpa"
    cache = model.new_cache(4)
    with pytest.raises(IndexError):
        model.forward(cache, [10**6], [0], np.ones((1, 1), dtype=np.bool_))
    assert model.hf.module.config._attn_implementation == "sdpa"


def test_a_pair_can_be_made_exact_and_inexact_again(tiny_models: TinyModels) -> None:
    known: Any = {512: "costs"}
    pair = replace(tiny_models.engine("neox", "bfloat16"), costs=known)
    exact = pair.batch_invariant()
    again = exact.fastest()
    assert (pair.exact, exact.exact, again.exact) == (False, True, False)
    assert (exact.costs, again.costs) == ({}, {}), "a twin begins with no costs"
    assert all((each.acceptance, each.threads) == (pair.acceptance, pair.threads) for each in (exact, again))
    ids = tiny_models.prompt_tokens("neox", "The tree grows")
    first, last = (decoded(one, ids, RunConfig(("linear",), 30)) for one in (pair, again))
    assert torch.equal(first.kept["linear"], last.kept["linear"])


def test_rows_that_agree_among_themselves_but_not_with_plain_text_are_refused(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(*parts: Any) -> Tensor:
        return 2 * attend(*parts)

    monkeypatch.setattr("decoder.forward.exact_attention.attend", doubled)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        tiny_models.engine("gpt2", "bfloat16").batch_invariant()
