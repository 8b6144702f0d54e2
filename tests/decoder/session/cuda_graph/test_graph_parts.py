"""Shapes, masks, acceptance and history on the device, each compared with the host's plain function."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.draft.model_drafter import best_children
from decoder.forward.layer_kinds import Windows
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph.device_state import DeviceState, verified
from decoder.session.cuda_graph.draft import PART, WHOLE, DraftLayout, DraftPart, best_tokens, parts
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.static_shapes import (
    BUCKETS,
    DEEPEST,
    MOST_NODES,
    WINDOW,
    Shape,
    bucket,
    fits,
    most_nodes,
    room,
    shape,
    slots,
    visible,
)
from decoder.session.cuda_graph.verify import _learn, ancestors, verify
from decoder.session.steering import KnobState
from decoder.tree import TokenTree
from decoder.tree_rules import Rules, tree_rule
from decoder.verify.verifier import GreedyVerifier, accept
from tests.decoder.session.cuda_graph.laid_out import CHAIN, VOCABULARY, laid_out, some_choices, some_tree

CPU = torch.device("cpu")


# Shapes


def test_the_paper_s_rules_have_narrow_levels() -> None:
    found = shape(DynaTree().rule())
    assert found.widths == (1, 3, 9, 16, 16, 16, 16, 16)
    assert (found.widest, found.deepest, found.rows) == (3, 8, 92)
    assert most_nodes(DynaTree().rule()) == 1 + 3 * (1 + 3 + 9 + 10 * 5)


@pytest.mark.parametrize(
    ("rules", "widths"),
    [
        (Linear(4), (1, 1, 1, 1)),
        (Fixed(depth=5, branching=2, tau=0.05), (1, 2, 4, 8, 16)),
        (Fixed(depth=4, branching=3, tau=0, n_max=5), (1, 3, 8, 8)),
        (DynaTree(d_max=3, d0=2, rho_stop=1, rho_deep=1), (1, 1, 1)),
    ],
)
def test_a_level_is_as_wide_as_its_probabilities_allow(rules: Rules, widths: tuple[int, ...]) -> None:
    assert shape(rules.rule()).widths == widths


def test_probabilities_that_are_rounded_up_still_find_room() -> None:
    """A threshold just above 0.1 allows nine nodes per level, but ten nodes of 0.1 in float32 may reach it."""
    assert shape(DynaTree(rho_stop=0.1 + 1e-9, d_max=6, branching=(3, 3, 3)).rule()).widths[-1] >= 10


FITTING: tuple[Rules | None, ...] = (
    None,
    *(Linear(), Linear(32)),
    *(Fixed(), Fixed(tau=0, n_max=256)),
    *(DynaTree(), DynaTree(window=WINDOW), DynaTree(rho_stop=0, rho_deep=0, tau=0), Auto()),
)
TOO_LARGE = (
    Linear(33),
    *(Fixed(tau=0, depth=12, n_max=256), Fixed(tau=0, branching=4, n_max=300)),
    *(DynaTree(window=WINDOW + 1), DynaTree(d_max=12, rho_stop=0, rho_deep=0, tau=0)),
    *(Auto(d_max=33), Auto(window=64)),
)


def test_rules_fit_where_their_tensors_stay_small() -> None:
    assert [rules for rules in FITTING if not fits(tree_rule(rules))] == []
    assert [rules for rules in TOO_LARGE if fits(tree_rule(rules))] == []


def test_buckets_and_ranges_of_slots_are_the_next_larger_ones() -> None:
    assert [bucket(nodes) for nodes in (1, 2, 8, 9, 33, 64, 65, 129, 257)] == [1, 8, 8, 32, 64, 64, 128, 264, 264]
    assert [slots(length) for length in (1, 256, 257, 513, 1024, 1025)] == [256, 256, 512, 1024, 1024, 2048]


def test_a_pass_reads_no_more_slots_than_the_cache_has() -> None:
    assert visible(1100, 65, most=room(1400)) == 1536 + 128
    for longest in range(1, 3000, 37):
        assert all(visible(length, 1, room(longest)) > length for length in range(1, longest + DEEPEST + 1, 19))


# Choices


def best(logits: torch.Tensor, count: int) -> tuple[list[list[int]], list[list[float]]]:
    layout = DraftLayout(Shape(count, (1,), best=True), logits.shape[1], CPU)
    logprobs, tokens = torch.zeros(len(logits), count), torch.zeros(len(logits), count, dtype=torch.int64)
    best_tokens(logits, layout, logprobs, tokens)
    return tokens.tolist(), logprobs.double().tolist()


@pytest.mark.parametrize("count", [1, 4])
@given(
    scores=st.lists(
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]) | st.floats(-3, 3, width=32), min_size=6, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_the_best_tokens_are_as_probable_as_the_host_s_and_are_the_host_s_where_no_scores_are_equal(
    count: int, scores: list[list[float]]
) -> None:
    tokens, logprobs = best(torch.tensor(scores), count)
    expected = best_children(torch.tensor(scores), count)
    assert logprobs == [pytest.approx(children.logprobs, abs=1e-5) for children in expected]
    for row, found, children in zip(torch.tensor(scores).log_softmax(-1).tolist(), tokens, expected, strict=True):
        assert [row[token] for token in found] == pytest.approx(children.logprobs, abs=1e-5)
        assert len(set(found)) == count
        if len(set(row)) == len(row):
            assert found == children.tokens


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("vocabulary", [8000, 8127, 32003, 50277, 50304, 151643, 151936])
def test_the_best_tokens_of_parts_are_distinct_and_those_of_the_whole_vocabulary(
    vocabulary: int, dtype: torch.dtype
) -> None:
    count = 8
    assert parts(vocabulary, count)
    logits = 3 * torch.randn((5, vocabulary), generator=torch.Generator().manual_seed(vocabulary))
    logits[1] = 0  # all tokens are equally probable
    logits[2, : vocabulary - 3] = -torch.inf
    logits[3, -2:] = 20  # the best tokens are the last ones
    logits[4, 40 : 40 + count] = 20  # the best tokens are in one part
    logarithms = logits.to(dtype).log_softmax(-1, torch.float32)
    tokens, logprobs = best(logits.to(dtype), count)
    assert logprobs == logarithms.topk(count).values.tolist()
    assert logarithms.gather(1, torch.tensor(tokens)).tolist() == logprobs
    assert all(len(set(row)) == count for row in tokens)


@given(st.integers(2, 300_000), st.integers(1, 100))
def test_a_vocabulary_is_divided_where_all_that_is_searched_takes_one_kernel(vocabulary: int, count: int) -> None:
    number = parts(vocabulary, count)
    assert number in {0, vocabulary // PART}
    if number:
        rest = vocabulary - number * PART
        assert vocabulary >= WHOLE
        assert count <= number < WHOLE
        assert 0 <= rest < PART
        assert count * PART + rest < WHOLE


# Acceptance


class Fake:
    """A target with scripted choices that records its inputs."""

    windows = Windows({}, ())

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices
        self.seen = torch.zeros(0)
        self.asked: list[list[int]] = []

    def new_store(self, capacity: int) -> torch.Tensor:
        """A store whose row s contains the number s."""
        return torch.arange(capacity, dtype=torch.float64).view(1, 1, 1, -1, 1).repeat(2, 2, 3, 1, 2)

    def rotation(self, _: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return positions

    def computed(self, *given: torch.Tensor) -> torch.Tensor:
        _, tokens, rotation, slots, bias = given
        self.asked = [tokens.tolist(), rotation.tolist(), slots.tolist()]
        self.seen = bias == 0
        padded = self.choices + [0] * (len(tokens) - len(self.choices))
        return torch.nn.functional.one_hot(torch.tensor(padded), VOCABULARY).double()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6))
def test_what_is_accepted_is_what_the_host_accepts_and_its_rows_follow_the_text(
    seed: int, nodes: int, length: int
) -> None:
    tree = some_tree(seed, nodes)
    choices = some_choices(tree, seed)
    path, bonus = accept(tree, choices.__getitem__)
    text = [*[3] * (length - 1), tree.tokens[0]]
    state = laid_out(tree, text)
    fake, other = Fake(choices), Fake([])
    target, draft = (DraftPart(model, model.new_store(600), VOCABULARY, 500) for model in (fake, other))
    deepest = max(tree.depths)
    verify(target, draft, state, bucket(len(tree)), deepest, 256, GreedyVerifier().choose, PLAIN)

    assert verified(state.report.numpy(), len(tree)) == (path, bonus)
    count = len(path)
    assert int(state.length) == length + count + 1
    assert state.text[: length + count + 1].tolist() == [*text, *(tree.tokens[node] for node in path), bonus]
    assert target.store[1, 0, 2, : length + count, 1].tolist() == [
        *range(length),
        *(length - 1 + node for node in path),
    ]
    assert draft.store[0, 1, 0, : length + count, 0].tolist() == [*range(length), *(length + 2 * node for node in path)]
    own = range(length - 1, length - 1 + bucket(len(tree)))
    assert fake.asked[0][: len(tree)] == tree.tokens
    assert fake.asked[1][: len(tree)] == [length - 1 + depth for depth in tree.depths]
    assert fake.asked[2] == list(own)
    within = fake.seen[: len(tree), length - 1 : length - 1 + len(tree)]
    if length > 1:
        assert (within.numpy() == tree.visible()).all()
    assert fake.seen[:, : length - 1].all()


def test_without_a_tree_a_verification_commits_the_verifier_s_choices_and_teaches_history_nothing() -> None:
    state, target = laid_out(TokenTree([3]), [1, 3]), Fake([5])
    side = DraftPart(target, target.new_store(600), VOCABULARY, 500)
    verify(side, None, state, 1, 0, 256, GreedyVerifier().choose, PLAIN)
    for choice in (4, 6):
        verify(
            side, None, state, 1, 0, 256, lambda logits, *_, choice=choice: torch.full((len(logits),), choice), PLAIN
        )
    assert state.text[:5].tolist() == [1, 3, 5, 4, 6]
    assert verified(state.report.numpy(), 1) == ([], 6)
    assert int(state.rounds) == 0
    assert float(state.rule.growth.tau_h) == DynaTree().tau_h


@pytest.mark.parametrize("tree", [*(some_tree(nodes, nodes) for nodes in BUCKETS[:-2]), CHAIN], ids=len)
def test_a_node_s_ancestors_are_those_above_it(tree: TokenTree) -> None:
    found = ancestors(torch.tensor([0, *tree.parents[1:]]), max(tree.depths), torch.eye(MOST_NODES))
    assert (found.numpy() == tree.visible()).all()


# History


def learn(state: DeviceState, accepted: int, levels: int) -> None:
    state.committed.fill_(accepted + 1)
    _learn(state, torch.tensor(levels + 1))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, DEEPEST), st.integers(0, DEEPEST)), min_size=1, max_size=90),
    st.integers(1, WINDOW),
    st.booleans(),
    st.sampled_from([0.1, 0.3, 1.0, 3.0]),
    st.sampled_from([0.0, 0.3, 0.7]),
)
def test_history_moves_the_knobs_as_on_the_host_to_the_last_bit(
    rounds: list[tuple[int, int]],
    window: int,
    history: bool,  # noqa: FBT001 - a test parameter
    eta: float,
    target: float,
) -> None:
    rules = DynaTree(history=history, window=window, eta_d=eta, eta_h=eta / 7, target_acceptance=target)
    controller, state = KnobState(rules), DeviceState(CPU, 600)
    state.begin([1, 2], rules.rule())
    for levels, accepted in rounds:
        accepted = min(accepted, levels)  # noqa: PLW2901 - no path is longer than the tree
        controller.learn(accepted / levels)
        learn(state, accepted, levels)
        now = controller.rules
        assert isinstance(now, DynaTree)
        assert (float(state.rule.growth.d0), float(state.rule.growth.tau_h)) == (now.d0, now.tau_h)
