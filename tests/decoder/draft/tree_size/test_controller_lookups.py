"""Rounds with lookups, with and without a draft model. Time is simulated, so no test depends on the machine."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from decoder.draft.lookup import SuffixIndex
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import DraftSource, TreeSizeController
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.draft.tree_size.drafted_round import LookupGuess
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


def test_a_text_that_repeats_itself_goes_by_lookups_alone() -> None:
    text = Text(looping, behind=1).decode(600)
    assert set(text.ways[-10:]) == {"lookup"}
    assert text.rate > 4


def test_without_a_draft_it_goes_by_lookups_too() -> None:
    text = Text(looping).decode(600)
    assert "draft" not in text.ways
    assert text.rate > 4


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


def test_a_draft_that_costs_nothing_and_guesses_well_drafts_beside_lookups() -> None:
    sizes = TreeSizeController(costs(1e-6), AcceptanceModel())
    found = SuffixIndex([0, 1, 2, 3, 4, 0, 1]).continuation()
    assert found is not None
    assert sizes.source(1, LookupGuess(found, sizes.lookups)) == "draft"


def test_a_token_that_the_draft_knows_has_the_chance_that_the_draft_gives_it() -> None:
    sizes = TreeSizeController(costs(1e-6), AcceptanceModel(), [0, 1, 2, 3, 4, 0, 1])
    found = SuffixIndex([0, 1, 2, 3, 4, 0, 1]).continuation()
    assert found is not None
    guess = LookupGuess(found, sizes.lookups)
    assert sizes.source(1, guess) == "draft"
    sizes.add_children(0, [9, 2, 8], [-0.3, -1.5, -3.0], lambda _: 3)
    assert sizes.add_lookups(0, guess) == ([], [])
    assert sizes.source(1, guess) == "draft"
    sizes.add_children(0, [9, 2, 8], [-0.3, -1.5, -3.0], lambda _: 1)
    tokens, chances = sizes.add_lookups(0, guess)
    assert tokens == [2]
    assert chances[0] == pytest.approx(sizes.acceptance.shares([-0.3, -1.5, -3.0], [0, 1, 0, 0])[1])


def test_beside_a_draft_that_is_sure_a_lookup_has_no_more_chance_than_is_left() -> None:
    sizes = TreeSizeController(costs(1e-6), AcceptanceModel())
    found = SuffixIndex([0, 1, 2, 3, 4, 0, 1]).continuation()
    assert found is not None
    guess = LookupGuess(found, sizes.lookups)
    sizes.source(1, guess)
    sizes.add_children(0, [9], [-0.001], lambda _: 1)
    _, chances = sizes.add_lookups(0, guess)
    assert all(chance < 0.1 for chance in chances)


def test_a_draft_that_lookups_have_left_behind_is_not_tested_for_that() -> None:
    text = Text(looping, level_s=30.0, behind=1).decode(400)
    assert text.behind is not None
    assert text.behind > 300
    assert "draft" not in text.ways[20:]


def test_what_the_draft_rules_out_is_no_guess_even_where_rows_cost_nothing() -> None:
    """Truncated sampling, and heads of few tokens, give tokens probability 0."""
    level, rows = RowCostCurve({1: 1e-6}), RowCostCurve({1: 1.0, 64: 1.0})
    sizes = TreeSizeController(Costs(RowCostCurve({1: 1.0}), level, level, rows, level), AcceptanceModel())
    found = SuffixIndex([0, 1, 2, 3, 4, 0, 1]).continuation()
    assert found is not None
    guess = LookupGuess(found, sizes.lookups)
    assert sizes.source(1, guess) == "draft"
    sizes.add_children(0, [9, 2], [0.0, -1e4], lambda _: 1)
    assert sizes.add_lookups(0, guess) == ([], [])


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
