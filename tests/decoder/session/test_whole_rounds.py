"""Every round of the engine equals the reference's: nodes, parents, log-probabilities, acceptance, knobs."""

from dataclasses import replace
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.events import Round
from decoder.methods.dynatree import Selection
from tests.decoder.makers import TinyModels
from tests.decoder.property_settings import examples
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.reference import AMBIGUOUS, simulate
from tests.tiny import FAMILIES

PROMPTS = ("The tree grows", "T", "A small model guesses; ")


def compare(
    tiny_models: TinyModels, name: str, dtype: str, prompt: str, config: RunConfig, ambiguous: float = AMBIGUOUS
) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    pair = tiny_models.pair(name)
    (method,) = config.methods
    rounds = [event for event in decode(tiny_models.loaded(pair, dtype), prompt, config) if isinstance(event, Round)]
    parameters: dict[str, DynaTree | Fixed | Linear] = {"dynatree": config.of(DynaTree), "alg1": config.of(DynaTree)}
    parameters |= {"fixed": config.of(Fixed), "linear": config.of(Linear)}
    oracle = tiny_models.oracle(pair, dtype)
    steps = simulate(
        oracle, tiny_models.prompt_tokens(pair, prompt), method, parameters.get(method), config.max_new_tokens
    )
    return assert_same_rounds(rounds, steps, ambiguous)


@st.composite
def dynatrees(draw: st.DrawFn) -> DynaTree:
    """Random DynaTree rules within the bounds, often at the bounds, and small enough for a quick check."""
    d_max = draw(st.integers(2, 9))
    branching = draw(st.sampled_from([(1, 2, 3), (2, 3, 4), (1, 1, 4), (2, 2, 2), (3, 3, 3), (1, 1, 1), (1, 3, 3)]))
    tau_l = draw(st.sampled_from([0.1, 0.4, 0.6]) | st.floats(0.01, 0.95))
    tau_h = max(tau_l + 0.02, draw(st.sampled_from([0.7, 0.9, 1.0]) | st.floats(0.1, 1)))
    rho_stop = draw(st.sampled_from([0.0, 0.01, 0.1]) | st.floats(0, 0.1))
    rho_deep = draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]) | st.floats(0, 0.3))
    return DynaTree(
        d0=draw(st.sampled_from([1.0, d_max - 1.0]) | st.floats(1, d_max - 1)),
        d_max=d_max,
        branching=branching,
        tau_h=tau_h,
        tau_l=tau_l,
        rho_stop=rho_stop,
        rho_deep=max(rho_stop, rho_deep),
        tau=draw(st.sampled_from([0.0, 0.0, 0.02]) | st.floats(0, 0.1)),
        n_max=draw(st.sampled_from([40, 80, 24, 256, 12, 9, 7, 5, 3, 2, 1])),
        selection=draw(st.sampled_from(["bfs", "best"])),
        history=draw(st.booleans()),
        window=draw(st.integers(1, 4)),
        target_acceptance=draw(st.sampled_from([0.1, 0.4, 0.7])),
        eta_d=draw(st.sampled_from([1.0, 3.0])),
        eta_h=draw(st.sampled_from([0.1, 0.5])),
        sharpness=draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])),
    )


fixeds = st.builds(
    Fixed,
    depth=st.integers(1, 6),
    branching=st.integers(1, 4),
    tau=st.sampled_from([0.0, 0.02, 1.0]) | st.floats(0, 0.1),
    n_max=st.sampled_from([40, 80, 24, 12, 9, 7, 5, 3, 2, 1]),
)
linears = st.builds(Linear, k=st.integers(1, 9))
configs = st.one_of(
    st.builds(lambda tree: RunConfig(("dynatree",), 20, dynatree=tree), dynatrees()),
    st.builds(lambda tree: RunConfig(("dynatree",), 20, dynatree=tree), dynatrees()),
    st.builds(lambda tree: RunConfig(("dynatree",), 20, dynatree=tree), dynatrees()),
    st.builds(lambda tree: RunConfig(("alg1",), 20, dynatree=tree), dynatrees()),
    st.builds(lambda tree: RunConfig(("fixed",), 20, fixed=tree), fixeds),
    st.builds(lambda chain: RunConfig(("linear",), 20, linear=chain), linears),
)


@examples(60)
@given(
    config=configs,
    name=st.sampled_from([*FAMILIES, "neox", "neox-strange", "wide-target", "wide-draft"]),
    dtype=st.sampled_from(["float64", "float32"]),
    prompt=st.sampled_from(PROMPTS),
)
def compare_any(tiny_models: TinyModels, score: Score, config: RunConfig, name: str, dtype: str, prompt: str) -> None:
    score.add(compare(tiny_models, name, dtype, prompt, config))


def test_every_round_is_the_reference_s_round(tiny_models: TinyModels) -> None:
    score = Score()
    compare_any(tiny_models, score)
    assert score.rounds > 10 * score.discarded
    assert score.rounds > 500
    assert score.nodes > 4 * score.rounds
    assert score.deep > 33


BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30)
SHARP = {
    "the paper's tree": RunConfig(("dynatree",), 48, dynatree=DynaTree()),
    "the paper's tree without history": RunConfig(("dynatree",), 48, dynatree=DynaTree(history=False)),
    "best of a wide tree": RunConfig(
        ("dynatree",),
        24,
        dynatree=DynaTree(
            branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=30, selection="best"
        ),
    ),
    "a sibling list cut by the budget": RunConfig(("dynatree",), 24, dynatree=replace(BUSHY, n_max=7)),
    "history from the first round": RunConfig(
        ("dynatree",), 48, dynatree=DynaTree(window=1, eta_d=2, target_acceptance=0.4, rho_stop=0.02, tau=0)
    ),
    "history with the paper's window": RunConfig(
        ("dynatree",), 64, dynatree=DynaTree(eta_d=3, eta_h=0.3, target_acceptance=0.3, rho_stop=0.05)
    ),
    "d0 that rounds up": RunConfig(("dynatree",), 24, dynatree=DynaTree(d0=2.5, history=False)),
    "d0 that rounds down": RunConfig(("dynatree",), 24, dynatree=DynaTree(d0=2.49, history=False)),
    "breadth off": RunConfig(("dynatree",), 24, dynatree=DynaTree(branching=(2, 2, 2), history=False)),
    "depth off": RunConfig(("dynatree",), 24, dynatree=DynaTree(rho_stop=0, rho_deep=0, d_max=4, d0=3)),
    "sharpened probabilities": RunConfig(("dynatree",), 48, dynatree=DynaTree(sharpness=2, history=False)),
    "algorithm 1": RunConfig(("alg1",), 48, dynatree=DynaTree()),
    "algorithm 1 with sharpened probabilities": RunConfig(("alg1",), 24, dynatree=DynaTree(sharpness=2)),
    "algorithm 1 with one node": RunConfig(("alg1",), 12, dynatree=DynaTree(n_max=1)),
    "algorithm 1 ignores best": RunConfig(("alg1",), 24, dynatree=replace(BUSHY, selection="best", n_max=9)),
    "the fixed tree": RunConfig(("fixed",), 48),
    "a chain": RunConfig(("linear",), 48),
    "no draft": RunConfig(("ar",), 24),
}
BY_FORM = ("neox", "qwen3"), ("llama", "gpt2")
"""Pairs of families: the engine computes the first itself, and the second with the module of transformers."""


@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for name, both in zip(SHARP, cycle(BY_FORM), strict=False) for family in both],
)
def test_named_settings_grow_the_reference_s_trees(tiny_models: TinyModels, name: str, family: str) -> None:
    compare(tiny_models, family, "float64", "The tree grows", SHARP[name])


@pytest.mark.parametrize("name", SHARP)
def test_nodes_are_numbered_level_by_level_with_siblings_by_falling_probability(
    tiny_models: TinyModels, name: str
) -> None:
    for event in tiny_models.play(tiny_models.pair("neox"), "float64", "The tree grows", SHARP[name]).rounds(
        SHARP[name].methods[0]
    ):
        assert event.parents == sorted(event.parents)
        for node, after in pairwise(range(1, len(event.parents))):
            if event.parents[node] == event.parents[after]:
                assert event.logprobs[node] >= event.logprobs[after]


def test_the_root_is_the_last_committed_token(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    text = tiny_models.prompt_tokens(pair, "The tree grows")
    for event in tiny_models.play(pair, "float64", "The tree grows", SHARP["the paper's tree"]).rounds("dynatree"):
        assert (event.tokens[0], event.parents[0], event.logprobs[0]) == (text[-1], -1, 0.0)
        text += event.committed


@pytest.mark.parametrize("selection", ["bfs", "best"])
@pytest.mark.parametrize("method", ["dynatree", "alg1", "fixed"])
def test_equals_are_taken_in_the_order_of_their_ids_and_their_nodes(
    tiny_models: TinyModels, method: str, selection: Selection
) -> None:
    """Tokens come in pairs with exactly equal logits, so every choice and every cut is a tie."""
    tree = replace(BUSHY, selection=selection, n_max=10)
    fixed = Fixed(depth=4, branching=3, tau=0, n_max=10)
    compare(
        tiny_models, "twins", "float64", "The tree", RunConfig((method,), 16, dynatree=tree, fixed=fixed), ambiguous=0
    )


@pytest.mark.parametrize("tau", [0.9, 1.0])
def test_a_node_as_probable_as_the_threshold_is_expanded(tiny_models: TinyModels, tau: float) -> None:
    """The root's probability is 1, so it is expanded at tau 1 too."""
    config = RunConfig(("dynatree", "fixed"), 8, dynatree=DynaTree(tau=tau), fixed=Fixed(tau=tau))
    played = tiny_models.play(tiny_models.pair("neox"), "float64", "The tree grows", config)
    assert all(len(event.tokens) > 1 for method in config.methods for event in played.rounds(method))
