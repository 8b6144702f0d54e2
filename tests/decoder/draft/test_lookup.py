"""Lookup trees equal those of an exhaustive search in the text."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft import lookup
from decoder.draft.lookup import LookupDrafter, SuffixIndex
from decoder.draft.suffix_automaton import FAMILIARITIES, FAMILIARITY, SuffixAutomaton
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.sampling.noise import DraftProbabilities, GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests import reference
from tests.decoder.draft import lookup_reference as searched
from tests.decoder.property_settings import examples

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)
MARGIN = reference.Margin()
NARROW = DynaTree(d0=2, d_max=4, tau_h=0.8, tau_l=0.5, rho_stop=0.2, rho_deep=0.6, n_max=9)
BY_RULES: list[tuple[Rules, Callable[[], reference.Rules]]] = [
    (Linear(4), lambda: reference.linear_rules(Linear(4), MARGIN)),
    (Linear(4, 0.4), lambda: reference.linear_rules(Linear(4, 0.4), MARGIN)),
    (Eagle2(4, 2, 6), lambda: reference.eagle2_rules(Eagle2(4, 2, 6))),
    (Fixed(4, 3, 0.2, 12), lambda: reference.fixed_rules(Fixed(4, 3, 0.2, 12), MARGIN)),
    (NARROW, lambda: reference.dynatree_rules(NARROW, MARGIN)),
    (DynaTree(d_max=6, selection="best", n_max=7), lambda: reference.dynatree_rules(
        DynaTree(d_max=6, selection="best", n_max=7), MARGIN)),
    (BestFirst(6, 4), lambda: reference.Rules(4, lambda _node, _logp: True, lambda _: 6, 6, best=True)),
]  # fmt: skip


def chain(text: Sequence[int], count: int, chances: DraftProbabilities | None = None) -> list[int]:
    """Drafted tokens of a chain after a text."""
    return LookupDrafter(chances).propose(text, Linear(count).rule(), 100).tree.tokens[1:]


def paths(tree: TokenTree) -> list[reference.Path]:
    """Tokens of the path from the root to each node, without the root's."""
    return [tuple(tree.tokens[above] for above in reversed(tree.ancestors(node)[:-1])) for node in range(len(tree))]


def noisy(seed: int, schedule: Schedule | None = None) -> GumbelNoise:
    return GumbelNoise(seed, schedule or Schedule(Sampling(0.7)), 10, torch.device("cpu"))


@examples(60)
@given(text=TEXTS)
def test_the_ends_are_those_of_a_search_and_the_one_looked_up_is_expected_to_bring_most(
    text: list[int],
) -> None:
    found = {ending.length: list(ending.places) for ending in SuffixIndex(text).suffix_continuations()}
    places = {length: searched.places(text, length) for length in range(lookup.SHORTEST, len(text) + 1)}
    right = {length: here for length, here in places.items() if here and here != places.get(length + 1)}
    assert found == right
    chosen = SuffixIndex(text).continuation()
    assert (chosen.length if chosen else 0) == searched.ending(text)


@examples(60)
@given(first=TEXTS, then=st.lists(TEXTS, max_size=4))
def test_a_text_that_grows_is_looked_up_as_one_that_was_there_at_once(first: list[int], then: list[list[int]]) -> None:
    drafter, text, rule = LookupDrafter(), list(first), Fixed(3, 2).rule()
    drafter.read(text[:-1])
    for more in then:
        text += more
        assert drafter.propose(text, rule, 9).tree == LookupDrafter().propose(text, rule, 9).tree


def test_noise_counts_from_where_the_user_turns_it_on_and_to_where_it_is_turned_off() -> None:
    text, schedule, greedy = [6, 7, 1, 6, 7, 2, 6, 7], Schedule(), list[bool]()
    drafter = LookupDrafter(noisy(3, schedule))
    for temperature in (0.0, 0.7, 0.0):
        schedule.turn(len(text), Sampling(temperature))
        greedy.append(drafter.propose(text, Fixed(1, 2, 0.0).rule(), 9).tree.draft_logprobs is None)
        text += [1, 6, 7]
    assert greedy == [True, False, True]


def test_who_does_not_know_the_noise_goes_by_shares() -> None:
    text, own = [6, 7, 1, 6, 7, 1, 6, 7, 2, 6, 7], DraftProbabilities(Schedule(Sampling(0.7)))
    rule = Fixed(1, 2, 0.0).rule()
    assert LookupDrafter(own).propose(text, rule, 9) == LookupDrafter().propose(text, rule, 9)


def test_a_text_of_one_token_over_and_over_is_looked_up_at_once() -> None:
    """Counts raised along all suffixes would take a minute."""
    past = SuffixIndex()
    for _ in range(2_000):
        past.extend([1] * 10)
    found = past.continuation()
    assert found is not None
    assert found.following(1) == [(1, 1.0)]


@pytest.mark.parametrize(("rules", "plain"), BY_RULES, ids=lambda given: type(given).__name__)
@examples(120)
@given(text=TEXTS, room=st.integers(0, 6), seed=st.none() | st.integers(0, 9))
def test_a_tree_is_that_of_a_search_under_every_rule_and_any_noise(
    rules: Rules, plain: Callable[[], reference.Rules], text: list[int], room: int, seed: int | None
) -> None:
    made = None if seed is None else noisy(seed)
    proposal = LookupDrafter(made).propose(text, rules.rule(), room)
    expected = searched.tree(
        text, plain(), room, (lambda position, token: made.noise_of(position, [token])[0]) if made else None
    )
    assert paths(proposal.tree) == list(expected)
    assert proposal.tree.path_logprobs == pytest.approx(list(expected.values()))
    assert proposal.forwards == 0, "a lookup costs no pass of a draft"


def test_under_noise_a_node_has_its_share_beside_its_chance() -> None:
    text = [6, 7, 1, 6, 7, 2, 6, 7, 1, 6, 7, 3, 6, 7]
    plain, tree = (LookupDrafter(made).propose(text, Fixed(1, 3, 0.0).rule(), 9).tree for made in (None, noisy(1)))
    assert plain.tokens == [7, 1, 3, 2], "what followed most often is the likeliest"
    shares = {7: 1, 1: 0.5, 3: 0.25, 2: 0.25}
    assert dict(zip(plain.tokens, map(math.exp, plain.logprobs), strict=True)) == pytest.approx(shares)
    assert tree.draft_logprobs is not None
    assert dict(zip(tree.tokens, map(math.exp, tree.draft_logprobs), strict=True)) == pytest.approx(shares)
    assert sum(map(math.exp, tree.logprobs[1:])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "count", "drafted"),
    [
        pytest.param([5, 1, 2, 9, 1, 2, 8, 5, 1, 2], 1, [9], id="a longer end that agrees is worth more"),
        pytest.param([1, 1, 1, 1, 1], 3, [1, 1, 1], id="a shorter end counts where the longer one is at its end"),
        pytest.param([1, 5, 2, 1], 1, [], id="an end has two tokens"),
        pytest.param([1, 2, 5, 1, 2], 1, [5], id="or more"),
        pytest.param([1, 2, 3, 4, 5, 6, 1, 2], 10, [3, 4, 5, 6, 1, 2], id="as far as the text went"),
        pytest.param([1, 2, 3], 4, [], id="a token that never was there"),
        pytest.param([1], 4, [], id="one token"),
    ],
)
def test_a_chain_goes_on_from_the_end_that_brings_most(text: list[int], count: int, drafted: list[int]) -> None:
    assert chain(text, count) == drafted


def test_only_the_latest_places_are_compared_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [3, 4, 5, 6, 4, 5, 7, 4, 5, 8, 3, 4, 5]
    assert chain(text, 1) == [6]
    monkeypatch.setattr(lookup, "SEARCHED", 2)
    assert chain(text, 1) == [8]
    monkeypatch.undo()
    monkeypatch.setattr(lookup, "COUNTED", 2)
    assert chain([8, 9, 1, 8, 9, 1, 8, 9, 1, 8, 9, 2, 8, 9, 2, 8, 9], 1) == [2]


# The automaton finds the same repetitions as a slow search in the text


WORDS = st.lists(st.integers(0, 2), max_size=24)


def occurs(piece: Sequence[int], text: Sequence[int]) -> bool:
    return any(list(text[start : start + len(piece)]) == list(piece) for start in range(len(text)))


def longest(text: list[int], path: list[int]) -> int:
    """Length of the longest common suffix that occurs in the text, before its end if there is no path."""
    before = text if path else text[:-1]
    whole = [*text, *path]
    lengths = range(len(whole), 0, -1)
    return next((length for length in lengths if occurs(whole[len(whole) - length :], before)), 0)


def followed(text: list[int], path: list[int]) -> int:
    repeats = SuffixAutomaton(text)
    place = repeats.here
    for token in path:
        (place,), _ = repeats.ahead(place, [token])
    return place[1]


@given(first=WORDS, then=WORDS)
def test_a_text_that_grows_is_the_same_as_one_that_was_there_at_once(first: list[int], then: list[int]) -> None:
    grown = SuffixAutomaton(first)
    grown.extend(then)
    assert grown.here == SuffixAutomaton([*first, *then]).here


def test_a_loop_is_more_familiar_each_time() -> None:
    lengths = [SuffixAutomaton([1, 2, 3] * times).here[1] for times in range(1, 5)]
    assert lengths == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("length", "kind"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (8, 3), (16, 4), (31, 4), (32, 5)]
)
def test_pieces_are_told_apart_by_the_powers_of_two_of_their_length(length: int, kind: int) -> None:
    assert FAMILIARITY[length] == kind
    assert kind < FAMILIARITIES


def test_a_long_text_is_taken_in_at_once() -> None:
    """A search would take seconds; an automaton has at most two states per token."""
    text = [token * token % 97 for token in range(20_000)]
    repeats = SuffixAutomaton(text)
    assert repeats.here[1] == 20_000 - 97


@given(text=WORDS, path=st.lists(st.integers(0, 3), max_size=8))
def test_the_end_of_a_text_and_a_path_is_found_where_it_was_before(text: list[int], path: list[int]) -> None:
    assert followed(text, path) == longest(text, path)


@pytest.mark.parametrize(
    ("text", "guesses", "lengths", "familiar"),
    [
        pytest.param([1, 2, 3] * 100, [9, 1], None, [0, FAMILIARITIES - 1, 0], id="as familiar as can be"),
        pytest.param([1, 2, 3, 4, 5, 1, 2, 3], [9, 4, 1], [0, 4, 1], [0, 2, 0, 0], id="the token that came before"),
        pytest.param([1, 2, 3, 4, 5, 1, 2, 3], [9, 8], [0, 0], [0, 0, 2], id="another token than the guesses"),
        pytest.param([1, 2, 3], [1, 9], [1, 0], [0, 0, 0], id="nothing is said again"),
    ],
)
def test_a_token_is_familiar_that_came_before(
    text: list[int], guesses: list[int], lengths: list[int] | None, familiar: list[int]
) -> None:
    repeats = SuffixAutomaton(text)
    places, found = repeats.ahead(repeats.here, guesses)
    assert lengths is None or [length for _, length in places] == lengths
    assert found == familiar
