"""Rounds with lookups, with and without a draft model. Time is simulated, so no test depends on the machine."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from decoder.draft.lookup import SuffixIndex
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import DraftSource, TreeSizeController
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.draft.tree_size.drafted_round import (
    DEEPEST,
    SEARCH_S,
    SEARCHED_EVERY,
    LookupGuess,
    LookupPauses,
    ModelGuesses,
    acceptance_of_lookups,
    chain_gain,
    draft_adds,
)
from decoder.draft.tree_size.loss_limit import PLAIN_EVERY

VERIFY = {1: 1.0, 2: 1.1, 4: 1.27, 8: 1.5, 16: 1.95, 32: 3.1, 64: 5.5}
"""Time of a verification by number of rows, in units of a plain round."""
LOOP = [5, 3, 8, 1, 9, 2, 7, 4]
Next = Callable[[random.Random, Sequence[int]], int]


def costs(level_s: float) -> Costs:
    level = RowCostCurve({1: level_s, 64: 6 * level_s})
    return Costs(
        RowCostCurve({1: 1.0}), level, level, RowCostCurve(VERIFY), RowCostCurve({1: 0.02}), RowCostCurve({1: 0.02})
    )


def looping(_: random.Random, text: Sequence[int]) -> int:
    """A text that repeats one loop."""
    return LOOP[len(text) % len(LOOP)]


def random_text(luck: random.Random, _: Sequence[int]) -> int:
    """A text of random tokens."""
    return luck.randrange(12)


@dataclass
class Text:
    """A simulated text with lookups and a draft that is always wrong; times are computed from the costs."""

    following: Next
    level_s: float = 0.2
    text: list[int] = field(default_factory=lambda: [0])
    seconds: float = 0.0
    ways: list[DraftSource] = field(default_factory=list)
    behind: int | None = None
    """Rows that the draft has not read; None without a draft."""

    def __post_init__(self) -> None:
        self.luck = random.Random(0)
        self.sizes = TreeSizeController(costs(self.level_s), AcceptanceModel())
        self.truth = costs(self.level_s)

    def decode(self, count: int) -> "Text":
        ends = len(self.text) + count
        while len(self.text) < ends:
            self._round()
        return self

    def _round(self) -> None:
        found = SuffixIndex(self.text).continuation()
        guess = LookupGuess(found, self.sizes.lookups) if found else None
        way = self.sizes.source(self.behind, guess)
        self.ways.append(way)
        nodes = [(-1, self.text[-1], guess)]
        if way == "draft":
            missed = min(self.sizes.missed, len(self.text)) - 1
            if missed:
                self.sizes.probe_draft([([50], [-0.5])] * missed, self.text[-missed:])
            self.sizes.add_children(0, [50, 51, 52], [-0.5, -2.0, -3.0], lambda _: 3)
            nodes += [(0, token, None) for token in (50, 51, 52)]
        if way != "plain":
            self._look_up(nodes)
            kept = self.sizes.keep()
        else:
            kept = [0]
        self._verify(nodes, kept, way)

    def _look_up(self, nodes: list[tuple[int, int, LookupGuess | None]]) -> None:
        level = [0]
        while level:
            below = list[int]()
            for node in level:
                guess = nodes[node][2]
                if guess is None:
                    continue
                tokens, chances = self.sizes.add_lookups(node, guess)
                assert all(0 < chance <= 1 for chance in chances)
                below += range(len(nodes), len(nodes) + len(tokens))
                nodes += [(node, token, guess.after(token)) for token in tokens]
            level = below

    def _verify(self, nodes: list[tuple[int, int, LookupGuess | None]], kept: Sequence[int], way: DraftSource) -> None:
        assert all(nodes[node][0] in kept for node in kept[1:])
        node, burst = 0, list[int]()
        while True:
            token = self.following(self.luck, [*self.text, *burst])
            burst.append(token)
            child = next((other for other in kept if nodes[other][:2] == (node, token)), None)
            if child is None:
                break
            node = child
        self.sizes.learn(burst)
        self.text += burst
        drafts_s = 0.0 if way != "draft" else self.truth.catch_up.seconds(self.behind or 0)
        self.seconds += drafts_s + (1.0 if way == "plain" else 0.04 + self.truth.verify.seconds(len(kept)))
        if self.behind is not None:
            self.behind = 1 if way == "draft" else self.behind + len(burst)

    @property
    def rate(self) -> float:
        """Tokens per second, relative to plain decoding."""
        return (len(self.text) - 1) / self.seconds


@pytest.mark.parametrize(("behind", "least"), [(None, 0.98), (1, 0.94)])
def test_a_text_of_chance_is_hardly_slower_than_plain_decoding(behind: int | None, least: float) -> None:
    """A draft that is always wrong takes a fifth of a plain round, so drafting alone loses some time."""
    text = Text(random_text, behind=behind).decode(1500)
    assert text.rate > least
    assert text.ways.count("plain") > 1000


def test_now_and_then_a_round_is_plain_so_that_its_cost_is_known() -> None:
    ways = Text(looping).decode(40 * PLAIN_EVERY).ways
    alone = "".join("l" if way == "lookup" else "p" for way in ways)
    assert max(map(len, alone.split("p"))) < PLAIN_EVERY


def test_a_draft_that_lookups_have_left_behind_is_not_tested_for_that() -> None:
    text = Text(looping, level_s=30.0, behind=1).decode(400)
    assert text.behind is not None
    assert text.behind > 300
    assert "draft" not in text.ways[20:]


def test_the_time_of_lookups_makes_drafting_by_the_model_no_dearer() -> None:
    text = Text(looping, behind=1).decode(400)
    before = [curve.seconds(1) for curve in (text.sizes.costs.draft, text.sizes.costs.catch_up, text.sizes.costs.host)]
    assert text.ways[-1] == "lookup"
    text.sizes.record_times(5.0, 1.0, 6.5)
    after = [curve.seconds(1) for curve in (text.sizes.costs.draft, text.sizes.costs.catch_up, text.sizes.costs.host)]
    assert after == before
    assert text.sizes.costs.lookup.seconds(1) > 0.02


def test_lookups_that_take_longer_than_they_save_are_left_alone() -> None:
    text = Text(looping)
    text.sizes = TreeSizeController(replace(costs(0.2), lookup=RowCostCurve({1: 100.0})), AcceptanceModel())
    assert set(text.decode(200).ways) == {"plain"}


@pytest.mark.parametrize("behind", [1, None])
def test_a_text_that_repeats_itself_goes_by_lookups_alone(behind: int | None) -> None:
    text = Text(looping, behind=behind).decode(600)
    assert set(text.ways[-10:]) == {"lookup"} if behind else "draft" not in text.ways
    assert text.rate > 4


def drafting(known: Costs, text: Sequence[int] = ()) -> tuple[TreeSizeController, LookupGuess]:
    """A round in which a draft that costs nothing drafts beside a guess of the token 2."""
    sizes = TreeSizeController(known, AcceptanceModel(), text)
    found = SuffixIndex([0, 1, 2, 3, 4, 0, 1]).continuation()
    assert found is not None
    guess = LookupGuess(found, sizes.lookups)
    assert sizes.source(1, guess) == "draft"
    return sizes, guess


def test_a_token_that_the_draft_knows_has_the_chance_that_the_draft_gives_it() -> None:
    sizes, guess = drafting(costs(1e-6), [0, 1, 2, 3, 4, 0, 1])
    sizes.add_children(0, [9, 2, 8], [-0.3, -1.5, -3.0], lambda _: 3)
    assert sizes.add_lookups(0, guess) == ([], [])
    assert sizes.source(1, guess) == "draft"
    sizes.add_children(0, [9, 2, 8], [-0.3, -1.5, -3.0], lambda _: 1)
    tokens, chances = sizes.add_lookups(0, guess)
    assert tokens == [2]
    assert chances[0] == pytest.approx(sizes.acceptance.shares([-0.3, -1.5, -3.0], [0, 1, 0, 0])[1])


def test_beside_a_draft_that_is_sure_a_lookup_has_no_more_chance_than_is_left() -> None:
    sizes, guess = drafting(costs(1e-6))
    sizes.add_children(0, [9], [-0.001], lambda _: 1)
    assert all(chance < 0.1 for chance in sizes.add_lookups(0, guess)[1])


def test_what_the_draft_rules_out_is_no_guess_even_where_rows_cost_nothing() -> None:
    """Truncated sampling, and heads of few tokens, give tokens probability 0."""
    level, rows = RowCostCurve({1: 1e-6}), RowCostCurve({1: 1.0, 64: 1.0})
    sizes, guess = drafting(Costs(RowCostCurve({1: 1.0}), level, level, rows, level))
    sizes.add_children(0, [9, 2], [0.0, -1e4], lambda _: 1)
    assert sizes.add_lookups(0, guess) == ([], [])


# Guesses: their acceptance probabilities, the gain of a draft beside them, and pauses


OFTEN = [6, 7, 1, 6, 7, 1, 6, 7, 2, 6, 7]


def guess(text: list[int], acceptance: AcceptanceModel | None = None) -> LookupGuess:
    found = SuffixIndex(text).continuation()
    assert found is not None
    return LookupGuess(found, acceptance or acceptance_of_lookups())


def test_a_guess_after_a_longer_end_is_likelier() -> None:
    piece = list(range(1, 41))
    chances = [guess([*piece, *piece[:length]]).shares[0] for length in (2, 3, 7, 15, 31)]
    assert chances == sorted(set(chances))


def test_what_followed_more_often_is_likelier_and_with_all_others_everything_that_can_follow() -> None:
    found = guess(OFTEN)
    assert found.tokens == [1, 2]
    assert found.shares[0] > found.shares[1]
    assert sum(found.shares) == pytest.approx(1)


def test_a_chain_goes_on_as_long_as_it_is_likely_enough_and_ends_where_the_past_does() -> None:
    piece = list(range(1, 101))
    found = guess([*piece, *piece[:20]])
    chances = found.chain(0.5)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] >= 0.5 > found.chain(0.0)[len(chances)]
    assert len(found.chain(0.0)) == DEEPEST
    assert len(guess([1, 2, 3, 4, 5, 1, 2]).chain(0.0)) == 5


@pytest.mark.parametrize(("chosen", "limit"), [(0, 1.0), (None, 0.0)])
def test_what_was_right_becomes_likelier_and_what_was_wrong_less_so(chosen: int | None, limit: float) -> None:
    acceptance = acceptance_of_lookups()
    before = guess([1, 2, 3, 1, 2], acceptance).shares[0]
    for _ in range(50):
        found = guess([1, 2, 3, 1, 2], acceptance)
        acceptance.learn(found.logprobs, found.shares, chosen, found.familiar)
    after = guess([1, 2, 3, 1, 2], acceptance).shares[0]
    assert abs(after - limit) < min(0.2, abs(before - limit))


def test_noise_that_is_known_ranks_what_followed() -> None:
    """At each position, noise decides between equally frequent continuations."""
    text, favoured = [6, 7, 1, 8, 6, 7, 2, 9, 6, 7], {10: 1, 11: 8}

    def noise(position: int, tokens: Sequence[int]) -> list[float]:
        return [3.0 if token == favoured[position] else 0.0 for token in tokens]

    found = SuffixIndex(text).continuation()
    assert found is not None
    first = LookupGuess(found, acceptance_of_lookups(), len(text), noise)
    assert first.tokens == [1, 2]
    assert first.shares[0] > guess(text).shares[0] > first.shares[1]
    second, plain = first.after(1), guess(text).after(1)
    assert second is not None
    assert plain is not None
    assert second.shares[0] > plain.shares[0]


def test_a_token_that_did_not_follow_has_nothing_after_it() -> None:
    found = guess([1, 2, 3, 4, 1, 2])
    assert found.after(9) is None
    after = found.after(3)
    assert after is not None
    assert after.tokens == [4]


@pytest.mark.parametrize(
    ("shares", "tokens", "chances", "expected"),
    [
        pytest.param((0.7, 0.1, 0.2), [1], [0.6, 0.4], [0.1], id="a token that both guess has the draft's chance"),
        pytest.param((0.7, 0.1, 0.2), [8, 9], [0.5, 0.25, 0.25], [0.1, 0.05], id="others share what the draft leaves"),
        # The lookup is certain of 0 or 9; if the token is none of the draft's guesses, it is 9.
        pytest.param((0.6, 0.4), [0, 9], [0.5, 0.5, 0.0], [0.6, 0.4], id="where its other guess is the draft's"),
        # With noise one guess may be so much more probable than another that its probability rounds to 1.
        pytest.param((0.6, 0.4), [0, 9], [1.0, 1e-30, 1e-30], [0.6, 0.2], id="beside one that the past is certain of"),
    ],
)
def test_beside_a_draft_guesses_have_these_chances(
    shares: Sequence[float], tokens: list[int], chances: list[float], expected: list[float]
) -> None:
    own = range(len(shares) - 1)
    model = ModelGuesses(own, [-1.0] * len(own), [0] * len(shares), shares, 1, len(own))
    assert model.beside(tokens, chances) == pytest.approx(expected)


# Gain of a draft


@pytest.mark.parametrize(
    ("chances", "seconds", "gain"),
    [([0.9, 0.8, 0.1], [0.5, 1.0, 2.0], 0.7), ([0.2, 0.1], [0.5, 1.0], 0), ([0.9, 0.8], [0.5], 0.4), ([], [], 0)],
)
def test_a_chain_is_worth_what_its_best_length_brings(chances: list[float], seconds: list[float], gain: float) -> None:
    assert chain_gain(chances, 1.0, seconds) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("chain", "hit", "price", "levels_s", "adds"),
    [
        pytest.param([1.0] * 20, 0.9, 1e-9, [1e-9] * 8, False, id="nothing to a chain that is right"),
        pytest.param([0.1], 0.9, 0.05, [0.2] * 8, True, id="much where the past knows little"),
        pytest.param([0.1], 0.9, 0.05, [2.0] * 8, False, id="nothing where levels are dear"),
        pytest.param([0.1], 0.1, 0.05, [0.2] * 8, False, id="nothing where it guesses badly"),
        pytest.param([], 0.9, 0.01, [1.5, *[0.1] * 7], True, id="a dear first pass may pay by further ones"),
        pytest.param([], 0.9, 0.01, [1.5], False, id="and not by itself"),
    ],
)
def test_what_a_draft_adds(chain: list[float], hit: float, price: float, levels_s: list[float], *, adds: bool) -> None:
    assert draft_adds(chain, hit, 1.0, price, levels_s) == adds


# Pauses in a text that does not repeat itself


def priced(gain: float = 0.1) -> LookupPauses:
    """Pauses of a text in which lookups are worth their search if they add `gain` tokens to a round."""
    pauses = LookupPauses()
    pauses.price = gain / SEARCH_S
    return pauses


def rounds(pauses: LookupPauses, count: int, tokens: int) -> list[bool]:
    """Whether lookups draft, round by round; where they do, they add `tokens` tokens."""
    searched = []
    for _ in range(count):
        searched.append(pauses.next_round())
        pauses.learn(tokens if searched[-1] else 0)
    return searched


def until_a_search(pauses: LookupPauses) -> LookupPauses:
    """The pauses after rounds without gain, up to the next search."""
    rounds(pauses, 100, tokens=0)
    while not pauses.next_round():
        pauses.learn(0)
    return pauses


def test_lookups_that_add_nothing_soon_draft_in_one_of_several_rounds_and_others_in_every_round() -> None:
    pauses = priced()
    searched = rounds(pauses, 100, tokens=0)
    assert all(searched[:10])
    assert pauses.paused
    assert sum(searched[-8 * SEARCHED_EVERY :]) == 8
    assert all(rounds(priced(), 100, tokens=1))


def test_a_pause_ends_with_one_long_repetition() -> None:
    pauses = until_a_search(priced())
    pauses.learn(8)
    assert not pauses.paused
    assert all(rounds(pauses, 5, tokens=1))


def test_a_skipped_round_counts_as_one_without_a_search() -> None:
    pauses = until_a_search(priced())
    for _ in range(SEARCHED_EVERY - 1):
        pauses.skip_round()
    assert pauses.next_round()


def test_without_lookups_nothing_is_learnt_about_them() -> None:
    pauses = priced()
    for _ in range(100):
        pauses.learn(0)
    assert not pauses.paused


@pytest.mark.parametrize(("gain", "paused"), [(0.2, False), (0.7, True)])
def test_the_dearer_the_time_the_more_tokens_lookups_must_add(gain: float, *, paused: bool) -> None:
    pauses = priced(gain)
    rounds(pauses, 3, tokens=0)
    assert pauses.paused == paused
