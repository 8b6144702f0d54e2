"""Every round of the engine, greedy or sampled, equals the reference's: nodes, log-probabilities, acceptance, knobs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.draft.model_drafter import ModelDrafter
from decoder.errors import DeviceError
from decoder.events import LENGTH, Round, Run, Start
from decoder.forward.protocol import Forward, Wrapped
from decoder.knobs import MOST
from decoder.methods.dynatree import Selection
from decoder.methods.eagle2 import Eagle2
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.host import HostSession
from decoder.tree import depths
from tests.decoder.makers import PROMPT, Played, TinyModels, host_session, play
from tests.decoder.property_settings import examples
from tests.decoder.session.all_methods import CONFIG, FIXEDS, TREES, Turns, dynatrees
from tests.decoder.session.round_comparison import Score, compare, oracle
from tests.tiny import CONTEXT, FAMILIES

PROMPTS = (PROMPT, "T", "A small model guesses; ")


METHODS = st.one_of(
    *(st.tuples(st.just(method), st.just("dynatree"), dynatrees()) for method in ("dynatree",) * 3 + ("alg1",)),
    st.tuples(st.just("fixed"), st.just("fixed"), FIXEDS),
    st.tuples(
        st.just("linear"),
        st.just("linear"),
        st.builds(Linear, k=st.integers(1, 9), p_min=st.sampled_from((0.0, 0.2, 0.5, 0.9))),
    ),
    st.tuples(
        st.just("eagle2"),
        st.just("eagle2"),
        st.builds(Eagle2, st.integers(1, 5), st.integers(1, 5), st.integers(2, 20)),
    ),
)
"""Methods, their rules' names, and rules."""
SAMPLINGS = st.just(Sampling()) | st.builds(
    Sampling,
    st.sampled_from([0.05, 0.5, 0.8, 1.0, 2.0]),
    st.sampled_from([0, 0, 1, 12]),
    st.sampled_from([1.0, 0.95, 0.5]),
)


KNOBS = st.one_of(
    st.tuples(st.sampled_from(["n_max", "draft_tokens"]), st.integers(1, 40)),
    st.tuples(st.sampled_from(["d_max", "k", "fixed_depth", "eagle_steps"]), st.integers(1, 9)),
    st.tuples(st.sampled_from(["b_min", "b_mid", "b_max", "fixed_branching", "eagle_topk"]), st.integers(1, 5)),
    st.tuples(
        st.sampled_from(["tau_h", "tau_l", "rho_stop", "rho_deep", "tau", "fixed_tau", "p_min"]), st.floats(0, 1)
    ),
    st.tuples(st.just("d0"), st.floats(0, 9)),
    st.tuples(st.just("history"), st.integers(0, 1)),
)
TURNS: st.SearchStrategy[Turns] = st.just({}) | st.dictionaries(
    st.integers(0, 9), st.lists(KNOBS, min_size=1, max_size=3), min_size=2
)


@examples(240)
@given(
    chosen=METHODS,
    sampling=SAMPLINGS,
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from([*FAMILIES, "neox", "neox-strange", "wide-target", "wide-draft"]),
    dtype=st.sampled_from(["float64", "float32"]),
    prompt=st.sampled_from(PROMPTS),
    turns=TURNS,
)
def compare_any(
    models: TinyModels,
    scores: dict[tuple[bool, bool], Score],
    chosen: tuple[str, Any, Any],
    sampling: Sampling,
    seed: int,
    name: str,
    dtype: str,
    prompt: str,
    turns: Turns,
) -> None:
    method, own, rules = chosen
    config = RunConfig((method,), 20, seed, parameters={SAMPLING: sampling, own: rules})
    scores[sampling.greedy, bool(turns)].add(compare(models, name, dtype, config, prompt, turns=turns)[0])


def test_every_round_is_the_reference_s_round_whatever_is_turned_whenever(tiny_models: TinyModels) -> None:
    scores = {(greedy, turned): Score() for greedy in (True, False) for turned in (True, False)}
    compare_any(tiny_models, scores)
    for score in scores.values():
        assert score.rounds > 5 * score.discarded
        assert score.rounds > 200
        assert score.nodes > 3 * score.rounds
        assert score.deep > 1


BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)
BEST = replace(BUSHY, selection="best")
SHARP: dict[str, tuple[int, DynaTree]] = {
    "the paper's tree": (48, DynaTree()),
    "the paper's tree without history": (48, DynaTree(history=False)),
    "best of a wide tree": (24, BEST),
    "a sibling list cut by the budget": (24, replace(BUSHY, n_max=7)),
    "history from the first round": (48, DynaTree(window=1, eta_d=2, target_acceptance=0.4, rho_stop=0.02, tau=0)),
    "history with the paper's window": (64, DynaTree(eta_d=3, eta_h=0.3, target_acceptance=0.3, rho_stop=0.05)),
    "d0 that rounds up": (24, DynaTree(d0=2.5, history=False)),
    "d0 that rounds down": (24, DynaTree(d0=2.49, history=False)),
    "breadth off": (24, DynaTree(branching=(2, 2, 2), history=False)),
    "depth off": (24, DynaTree(rho_stop=0, rho_deep=0, d_max=4, d0=3)),
    "sharpened probabilities": (48, DynaTree(sharpness=2, history=False)),
    "a node as probable as the threshold": (8, DynaTree(tau=1)),
}
NAMED = {name: RunConfig(("dynatree",), count, dynatree=tree) for name, (count, tree) in SHARP.items()} | {
    "algorithm 1": RunConfig(("alg1",), 48, dynatree=DynaTree()),
    "algorithm 1 with sharpened probabilities": RunConfig(("alg1",), 24, dynatree=DynaTree(sharpness=2)),
    "algorithm 1 with one node": RunConfig(("alg1",), 12, dynatree=DynaTree(n_max=1)),
    "algorithm 1 ignores best": RunConfig(("alg1",), 24, dynatree=replace(BEST, n_max=9)),
    "the fixed tree": RunConfig(("fixed",), 48),
    "a fixed tree with a node as probable as the threshold": RunConfig(("fixed",), 8, fixed=Fixed(tau=1)),
    "a chain": RunConfig(("linear",), 48),
    "no draft": RunConfig(("ar",), 24),
}
BY_FORM = ("neox", "qwen3"), ("llama", "gpt2")
"""Pairs of families: the engine computes the first itself, and the second with the module of transformers."""


@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for name, both in zip(NAMED, cycle(BY_FORM), strict=False) for family in both],
)
def test_named_settings_grow_the_reference_s_trees(tiny_models: TinyModels, name: str, family: str) -> None:
    _, played = compare(tiny_models, family, "float64", NAMED[name])
    if "as probable as the threshold" in name:
        assert all(len(event.tokens) > 1 for event in played.rounds(NAMED[name].methods[0]))


@pytest.mark.parametrize("selection", ["bfs", "best"])
@pytest.mark.parametrize("method", ["dynatree", "alg1", "fixed"])
def test_equals_are_taken_by_their_ids_and_nodes(tiny_models: TinyModels, method: str, selection: Selection) -> None:
    """Tokens come in pairs with exactly equal logits, so every choice and every cut is a tie."""
    tree = replace(BUSHY, selection=selection, n_max=10)
    config = RunConfig((method,), 16, dynatree=tree, fixed=Fixed(depth=4, branching=3, tau=0, n_max=10))
    compare(tiny_models, "twins", "float64", config, "The tree", ambiguous=0)


# What a recording tells of sampled and sharpened trees


def in_tree(event: Round, text: tuple[int, ...], logprobs: Callable[[tuple[int, ...]], Sequence[float]]) -> list[float]:
    """Log-probability of each drafted node after its path, by a function from a text to the next token's
    log-probabilities.
    """
    paths: list[tuple[int, ...]] = [()]
    for token, parent in list(zip(event.tokens, event.parents, strict=True))[1:]:
        paths.append((*paths[parent], token))
    return [logprobs(text + path[:-1])[path[-1]] for path in paths[1:]]


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(("dynatree",), 20, 9, temperature=0.7, top_k=40, top_p=0.9),
        RunConfig(("dynatree",), 20, dynatree=DynaTree(sharpness=2)),
    ],
    ids=["sampled", "greedy and sharpened"],
)
def test_a_recording_says_what_the_draft_thought(tiny_models: TinyModels, config: RunConfig) -> None:
    race = play(tiny_models.engine("neox"), config)
    run, plain = race.events[0], oracle(tiny_models, "neox", "float32", RunConfig())
    assert isinstance(run, Run)
    assert Sampling(run.temperature, run.top_k, run.top_p) == config.sampling
    assert run.seed == config.seed
    text = tuple(run.prompt_tokens)
    for event in race.rounds("dynatree"):
        assert event.draft_logprobs[1:] == pytest.approx(in_tree(event, text, plain.draft_logprobs), abs=1e-4)
        if config.sampling.greedy:
            sharpened = in_tree(event, text, lambda before: plain.draft_logprobs(before, sharpness=2))
            assert event.logprobs[1:] == pytest.approx(sharpened, abs=1e-4)
        text += tuple(event.committed)


# Ends of the context and of the text


@pytest.mark.parametrize("method", TREES)
def test_trees_are_as_deep_as_the_context_allows_and_no_deeper(tiny_models: TinyModels, method: str) -> None:
    prompt = ("0123456789" * CONTEXT)[: CONTEXT - 12]
    tree = DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20, history=False)
    config = RunConfig((method,), 12, dynatree=tree, fixed=Fixed(tau=0, n_max=20))
    _, played = compare(tiny_models, "neox", "float64", config, prompt)
    for event in played.rounds(method):
        assert CONTEXT - 12 + event.position - (method != "alg1") + max(depths(event.parents)) < CONTEXT


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("method", TREES)
def test_the_length_limit_shortens_what_is_told_of_a_tree_and_not_what_is_drafted(
    tiny_models: TinyModels, played: Played, method: str, length: int
) -> None:
    config = replace(CONFIG, methods=(method,), max_new_tokens=length)
    short = tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config)
    assert short.tokens(method) == played.tokens(method)[:length]
    for told, event in zip(short.rounds(method), played.rounds(method), strict=False):
        levels = [depth + (method == "alg1") for depth in depths(event.parents)]
        kept = [node for node, level in enumerate(levels) if node == 0 or level < length - event.position]
        assert told.tokens == [event.tokens[node] for node in kept]
        assert told.draft_forwards == event.draft_forwards


# Forward passes of a round, and memory for its tree


@dataclass
class Counted(Wrapped):
    inner: Forward
    passes: list[int] = field(default_factory=list)
    """Number of rows of each forward pass."""

    def forward(self, cache: Any, tokens: Sequence[int], *rest: Any) -> Any:
        self.passes.append(len(tokens))
        return self.inner.forward(cache, tokens, *rest)

    def read(self, cache: Any, tokens: Sequence[int]) -> Any:
        self.passes.append(len(tokens))
        return self.inner.read(cache, tokens)


@contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """A list to which every forward pass of the model adds its number of rows."""
    right = model.runs_by
    model.runs_by = Counted(right)
    yield model.runs_by.passes
    model.runs_by = right


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_forward_passes_told_are_those_that_were_run(tiny_models: TinyModels, method: str) -> None:
    engine = tiny_models.engine("llama")
    with counted(engine.pair.target) as target, counted(engine.pair.draft_model) as draft:
        seen = (0, 0)
        for event in decode(engine, PROMPT, replace(CONFIG, methods=(method,))):
            if isinstance(event, Start):
                seen = (len(target), len(draft))
            if isinstance(event, Round):
                assert (len(target) - seen[0], len(draft) - seen[1]) == (event.target_forwards, event.draft_forwards)
                seen = (len(target), len(draft))
        assert (len(target), len(draft)) == seen


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("name", ["neox", "neox-strange"])
def test_the_draft_runs_at_most_once_a_level_and_once_more(tiny_models: TinyModels, name: str, method: str) -> None:
    rounds = tiny_models.play(tiny_models.pair(name), "float32", PROMPT, CONFIG).rounds(method)
    whole = [event for event in rounds if event.limited_by != LENGTH]
    assert len(whole) > 4
    for event in whole:
        levels = max(depths(event.parents)) + (method == "alg1")
        assert event.draft_forwards is not None
        assert levels <= event.draft_forwards <= levels + 1


def begun(models: TinyModels, rules: DynaTree, dtype: str = "float64") -> tuple[HostSession, Any]:
    """A session that has read the prompt, and its draft's cache."""
    ids = models.prompt_tokens(models.pair("neox"), PROMPT)
    session = host_session(models.engine("neox", dtype), ids, 8, rules)
    session.prefill()
    assert isinstance(session.proposer, ModelDrafter)
    return session, session.proposer.passes.cache


@pytest.mark.parametrize("n_max", [1, 3, 8, 20])
def test_the_best_nodes_are_those_of_a_tree_that_grows_without_a_limit(tiny_models: TinyModels, n_max: int) -> None:
    whole, best = (begun(tiny_models, replace(BEST, n_max=nodes))[0].step(()).tree for nodes in (4096, n_max))
    assert best.tokens == whole.subtree(whole.most_probable(n_max)).tokens
    assert len(whole) > 200


def test_the_largest_rules_need_no_more_room_than_a_tree_has(tiny_models: TinyModels) -> None:
    largest = DynaTree(d0=1, d_max=MOST, branching=(3, 3, 3), n_max=MOST, rho_stop=0, tau=0, selection="best")
    _, rows = begun(tiny_models, largest, "float32")
    assert rows.store.shape[3] < 2 * MOST


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_full_memory_is_one_line(tiny_models: TinyModels, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(HostSession, "_reserve", full)
    with pytest.raises(DeviceError, match="the memory of cpu is full; choose smaller models"):
        list(decode(tiny_models.engine("neox"), PROMPT, RunConfig(("ar",), 4)))
