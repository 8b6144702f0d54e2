"""Lookup trees equal those of an exhaustive search in the text."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft import lookup
from decoder.draft.lookup import LookupDrafter, SuffixIndex
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
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
    (Linear(4), lambda: reference.linear_rules(Linear(4))),
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
def test_the_ends_that_are_found_are_those_of_a_search(text: list[int]) -> None:
    found = {ending.length: list(ending.places) for ending in SuffixIndex(text).suffix_continuations()}
    lengths = range(lookup.SHORTEST, len(text))
    assert found == {
        length: searched.places(text, length)
        for length in lengths
        if searched.places(text, length) and searched.places(text, length) != searched.places(text, length + 1)
    }


@examples(60)
@given(text=TEXTS)
def test_the_end_that_is_looked_up_is_expected_to_bring_most(text: list[int]) -> None:
    found = SuffixIndex(text).continuation()
    assert (found.length if found else 0) == searched.ending(text)


@pytest.mark.parametrize(("rules", "plain"), BY_RULES, ids=lambda given: type(given).__name__)
@examples(60)
@given(text=TEXTS, room=st.integers(0, 6))
def test_a_tree_is_that_of_a_search_under_every_rule(
    rules: Rules, plain: Callable[[], reference.Rules], text: list[int], room: int
) -> None:
    tree = LookupDrafter().propose(text, rules.rule(), room).tree
    expected = searched.tree(text, plain(), room)
    assert paths(tree) == list(expected)
    assert tree.path_logprobs == list(expected.values())


@pytest.mark.parametrize(("rules", "plain"), BY_RULES, ids=lambda given: type(given).__name__)
@examples(60)
@given(text=TEXTS, room=st.integers(0, 6), seed=st.integers(0, 9))
def test_under_noise_that_is_known_it_is_that_of_a_search_too(
    rules: Rules, plain: Callable[[], reference.Rules], text: list[int], room: int, seed: int
) -> None:
    made = noisy(seed)
    tree = LookupDrafter(made).propose(text, rules.rule(), room).tree
    expected = searched.tree(text, plain(), room, lambda position, token: made.noise_of(position, [token])[0])
    assert paths(tree) == list(expected)
    assert tree.path_logprobs == pytest.approx(list(expected.values()))


@examples(60)
@given(first=TEXTS, then=st.lists(TEXTS, max_size=4))
def test_a_text_that_grows_is_looked_up_as_one_that_was_there_at_once(first: list[int], then: list[list[int]]) -> None:
    drafter, text, rule = LookupDrafter(), list(first), Fixed(3, 2).rule()
    drafter.read(text[:-1])
    for more in then:
        text += more
        assert drafter.propose(text, rule, 9).tree == LookupDrafter().propose(text, rule, 9).tree


def test_what_followed_most_often_is_the_likeliest() -> None:
    text = [6, 7, 1, 6, 7, 2, 6, 7, 1, 6, 7, 3, 6, 7]
    tree = LookupDrafter().propose(text, Fixed(1, 3, 0.0).rule(), 9).tree
    assert tree.tokens == [7, 1, 3, 2]
    assert [round(math.exp(logprob), 3) for logprob in tree.logprobs] == [1, 0.5, 0.25, 0.25]


def test_of_what_followed_as_often_that_is_drafted_which_the_noise_favours() -> None:
    text = [6, 7, 1, 6, 7, 2, 6, 7]
    found = set[int]()
    for seed in range(20):
        (token,) = chain(text, 1, noisy(seed))
        one, other = noisy(seed).noise_of(len(text), [1, 2])
        assert token == (1 if one > other else 2)
        found.add(token)
    assert found == {1, 2}


def test_under_noise_a_node_has_its_share_beside_its_chance() -> None:
    text = [6, 7, 1, 6, 7, 2, 6, 7, 1, 6, 7, 3, 6, 7]
    tree = LookupDrafter(noisy(1)).propose(text, Fixed(1, 3, 0.0).rule(), 9).tree
    assert tree.draft_logprobs is not None
    shares = {token: round(math.exp(own), 3) for token, own in zip(tree.tokens, tree.draft_logprobs, strict=True)}
    assert shares == {7: 1, 1: 0.5, 2: 0.25, 3: 0.25}
    assert sum(map(math.exp, tree.logprobs[1:])) == pytest.approx(1)


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


def test_a_longer_end_that_agrees_is_worth_more_than_a_shorter_one_that_does_not() -> None:
    assert chain([5, 1, 2, 9, 1, 2, 8, 5, 1, 2], 1) == [9]


def test_a_shorter_end_counts_where_the_longer_one_is_at_its_end() -> None:
    """The longest suffix, 1 1 1 1, was followed by one token only."""
    assert len(chain([1, 1, 1, 1, 1], 3)) == 3


def test_the_end_that_is_looked_up_has_two_tokens_or_more() -> None:
    assert chain([1, 5, 2, 1], 1) == []
    assert chain([1, 2, 5, 1, 2], 1) == [5]


def test_lookups_go_as_far_as_the_text_went() -> None:
    assert chain([1, 2, 3, 4, 5, 6, 1, 2], 10) == [3, 4, 5, 6, 1, 2]


def test_a_token_that_never_was_there_is_followed_by_nothing() -> None:
    assert chain([1, 2, 3], 4) == []
    assert chain([1], 4) == []


def test_a_lookup_costs_no_pass_of_a_draft() -> None:
    assert LookupDrafter().propose([1, 2, 1], Linear(2).rule(), 9).forwards == 0


def test_only_the_latest_places_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "COUNTED", 2)
    assert chain([8, 9, 1, 8, 9, 1, 8, 9, 1, 8, 9, 2, 8, 9, 2, 8, 9], 1) == [2]


def test_only_the_latest_places_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [3, 4, 5, 6, 4, 5, 7, 4, 5, 8, 3, 4, 5]
    assert chain(text, 1) == [6]
    monkeypatch.setattr(lookup, "SEARCHED", 2)
    assert chain(text, 1) == [8]


def test_a_text_of_one_token_over_and_over_is_looked_up_at_once() -> None:
    """Counts raised along all suffixes would take a minute."""
    past = SuffixIndex()
    for _ in range(2_000):
        past.extend([1] * 10)
    found = past.continuation()
    assert found is not None
    assert found.following(1) == [(1, 1.0)]
