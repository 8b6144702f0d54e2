"""Lookups pause in a text that does not repeat itself, and draft again when it does."""

from decoder.draft.tree_size.lookup_pauses import SEARCH_S, SEARCHED_EVERY, LookupPauses


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


def test_lookups_that_add_nothing_soon_draft_in_one_of_several_rounds() -> None:
    pauses = priced()
    searched = rounds(pauses, 100, tokens=0)
    assert all(searched[:10])
    assert pauses.paused
    assert sum(searched[-8 * SEARCHED_EVERY :]) == 8


def test_lookups_that_add_tokens_draft_in_every_round() -> None:
    assert all(rounds(priced(), 100, tokens=1))


def test_a_pause_ends_with_one_long_repetition() -> None:
    pauses = priced()
    rounds(pauses, 100, tokens=0)
    while not pauses.next_round():
        pauses.learn(0)
    pauses.learn(8)
    assert not pauses.paused
    assert all(rounds(pauses, 5, tokens=1))


def test_a_skipped_round_counts_as_one_without_a_search() -> None:
    pauses = priced()
    rounds(pauses, 100, tokens=0)
    while not pauses.next_round():
        pauses.learn(0)
    for _ in range(SEARCHED_EVERY - 1):
        pauses.skip_round()
    assert pauses.next_round()


def test_without_lookups_nothing_is_learnt_about_them() -> None:
    pauses = priced()
    for _ in range(100):
        pauses.learn(0)
    assert not pauses.paused


def test_the_dearer_the_time_the_more_tokens_lookups_must_add() -> None:
    cheap, dear = priced(0.2), priced(0.7)
    rounds(cheap, 3, tokens=0)
    rounds(dear, 3, tokens=0)
    assert not cheap.paused
    assert dear.paused
