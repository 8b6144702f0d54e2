"""Trees of `bestfirst` hold the most probable nodes, and its text equals that of plain decoding."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

import pytest

from decoder import RunConfig
from decoder.errors import ConfigError
from decoder.events import Round
from decoder.methods import METHODS
from decoder.methods.bestfirst import MOST_CHILDREN, BestFirst
from decoder.session.cuda_graph.static_shapes import fits
from tests import tiny
from tests.decoder.makers import Played, TinyModels
from tests.reference import AMBIGUOUS, Oracle, Path, greedy
from tests.sampled_reference import SampledOracle

PROMPT = "A small model guesses; "
TEXT = 24


def by_falling_chance(oracle: Oracle, text: Path, deepest: int, children: int) -> Iterator[tuple[Path, float]]:
    """All nodes by decreasing path probability, each with the logarithm of its probability."""
    waiting: list[tuple[float, Path]] = [(0.0, ())]
    while waiting:
        cost, node = heapq.heappop(waiting)
        if node:
            yield node, -cost
        if len(node) < deepest:
            logprobs = oracle.draft_logprobs(text + node)
            order = sorted(range(len(logprobs)), key=lambda token: -logprobs[token])
            for token in order[:children]:
                heapq.heappush(waiting, (cost - logprobs[token], (*node, token)))


def nodes_of(event: Round) -> set[Path]:
    """Drafted nodes, each given by the tokens of its path."""
    paths: list[Path] = [()]
    for token, parent in zip(event.tokens[1:], event.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return {*paths[1:]}


def compared(
    oracle: Oracle, prompt: Sequence[int], played: Played, rules: BestFirst, children: int = tiny.VOCABULARY
) -> int:
    """Compares each tree with the reference's; returns the number of trees without near ties."""
    text, clear, length = tuple(prompt), 0, len(played.tokens("bestfirst"))
    for event in played.rounds("bestfirst"):
        found = by_falling_chance(oracle, text, rules.depth, children)
        kept = list(islice(found, rules.n_max))
        last, chance = kept[-1]
        # The rival must not be a descendant: its probability never exceeds its ancestor's, however close both are.
        rival = next(logp for node, logp in found if node[: len(last)] != last)
        if chance - rival > AMBIGUOUS:
            left = length - event.position
            assert nodes_of(event) == {node for node, _ in kept if len(node) < left}
            clear += 1
        text += tuple(event.committed)
    return clear


def sampled_oracle(tiny_models: TinyModels, name: str, config: RunConfig) -> SampledOracle:
    pair = tiny_models.pair(name)
    modules = tiny_models.plain(pair.target, "float32"), tiny_models.plain(pair.draft, "float32")
    return SampledOracle(*modules, tiny.CONTEXT, sampling=config.sampling, seed=config.seed)


@pytest.mark.parametrize("name", ["neox", "neox-strange", "llama"])
@pytest.mark.parametrize("rules", [BestFirst(1, 3), BestFirst(7, 1), BestFirst(9, 3), BestFirst(20, 5)], ids=str)
def test_a_tree_is_the_most_probable_nodes_of_bounded_depth(
    tiny_models: TinyModels, name: str, rules: BestFirst
) -> None:
    pair, config = tiny_models.pair(name), RunConfig(("bestfirst",), TEXT, bestfirst=rules)
    played = tiny_models.play(pair, "float32", PROMPT, config)
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    assert compared(tiny_models.oracle(pair, "float32"), prompt, played, rules) > len(played.rounds("bestfirst")) // 2


def test_a_sampled_tree_is_the_most_probable_nodes_under_the_noise(tiny_models: TinyModels) -> None:
    rules = BestFirst(9, 4)
    config = RunConfig(("bestfirst",), TEXT, 3, temperature=0.8, top_p=0.9, bestfirst=rules)
    pair = tiny_models.pair("neox")
    played = tiny_models.play(pair, "float32", PROMPT, config)
    oracle = sampled_oracle(tiny_models, "neox", config)
    clear = compared(oracle, tiny_models.prompt_tokens(pair, PROMPT), played, rules)
    assert clear > len(played.rounds("bestfirst")) // 2


def test_a_large_tree_lacks_only_children_beyond_the_most_that_a_node_has(tiny_models: TinyModels) -> None:
    rules = BestFirst(MOST_CHILDREN + 18, 2)
    pair, config = tiny_models.pair("neox"), RunConfig(("bestfirst",), 8, bestfirst=rules)
    played = tiny_models.play(pair, "float32", PROMPT, config)
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    assert compared(tiny_models.oracle(pair, "float32"), prompt, played, rules, MOST_CHILDREN) > 0


@pytest.mark.parametrize("name", ["neox", "neox-strange", "llama", "gpt2"])
@pytest.mark.parametrize("rules", [BestFirst(), BestFirst(1, 1), BestFirst(24, 3)], ids=str)
def test_its_text_is_that_of_plain_greedy_decoding(tiny_models: TinyModels, name: str, rules: BestFirst) -> None:
    pair = tiny_models.pair(name)
    played = tiny_models.play(pair, "float32", PROMPT, RunConfig(("bestfirst",), 40, bestfirst=rules))
    assert played.tokens("bestfirst") == tiny_models.generate(pair, "float32", PROMPT, 40)


@pytest.mark.parametrize("name", ["neox", "neox-strange"])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_its_text_is_that_of_plain_sampling_with_the_same_noise(
    tiny_models: TinyModels, name: str, top_p: float
) -> None:
    config = RunConfig(("bestfirst",), TEXT, 5, temperature=0.8, top_p=top_p)
    pair = tiny_models.pair(name)
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    expected = greedy(sampled_oracle(tiny_models, name, config), prompt, TEXT)
    assert tiny_models.play(pair, "float32", PROMPT, config).tokens("bestfirst") == expected


def test_what_ends_a_path_is_its_depth_or_the_number_of_nodes() -> None:
    rules = BestFirst(9, 3)
    assert (rules.limit(3, 0.5), rules.limit(2, 0.5)) == ("best_depth", "n_max")


def test_trees_of_usual_size_have_the_fixed_shapes_that_graphs_replay_and_huge_ones_do_not() -> None:
    assert all(fits(BestFirst(nodes, depth).rule()) for nodes, depth in ((8, 5), (60, 8), (128, 8)))
    assert not fits(BestFirst(256, 8).rule())


def test_its_option_reads_what_it_writes_and_names_an_example() -> None:
    (option,) = METHODS["bestfirst"].options
    assert option.changes(option.value(BestFirst(12, 4))) == {"n_max": 12, "depth": 4}
    with pytest.raises(ConfigError, match="--bestfirst is '12'; give 2 whole numbers, for example 16,6"):
        option.changes("12")
