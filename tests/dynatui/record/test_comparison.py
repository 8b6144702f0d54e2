"""Two recordings compared text by text: ratios of speed-ups, other texts, what cannot be told."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import json, structs

from decoder.errors import RecordingError
from decoder.events import End, Event
from dynatui.record.comparison import Comparison, comparison, told
from tests.dynatui.scripted_runs import plain_round, raced, run, tree_round

NAMES = ("before.jsonl", "after.jsonl")


def text(number: int, seed: int = 0, slower: float = 1.0, load: float = 1.0, *, plain: bool = True) -> list[Event]:
    """A run on prompt `number`: the tree method takes `slower` times as long, the machine `load` times."""
    random = np.random.default_rng((seed, number))
    factors = np.exp(0.05 * random.normal(size=(2, 200)))
    ends = [load * slower * 0.025 * np.cumsum(factors[0]), load * 0.02 * np.cumsum(factors[1])]
    trees = [structs.replace(tree_round(place), t=float(ends[0][place])) for place in range(100)]
    ar = [structs.replace(plain_round("ar", place), t=float(ends[1][place])) for place in range(130)] if plain else []
    begun = structs.replace(run(("dynatree", "ar") if plain else ("dynatree",)), prompt_tokens=[number])
    return [begun, *raced(trees, ar), End(method="dynatree", reason="length")]


def compared(a: Sequence[Sequence[Event]], b: Sequence[Sequence[Event]]) -> Comparison:
    return comparison(NAMES, a, b)


@pytest.mark.parametrize("texts", [1, 3, 8])
def test_a_slowdown_is_told_with_its_size(texts: int) -> None:
    found = compared([text(n) for n in range(texts)], [text(n, 1, 1.25) for n in range(texts)])
    own = found.methods["dynatree"]
    assert (own.verdict, found.changed, own.texts) == ("slower", True, texts)
    assert own.ratio == pytest.approx(1 / 1.25, rel=0.05)
    assert (own.low or 0) < 1 / 1.25 < (own.high or 0) < 1
    back = compared([text(n, 1, 1.25) for n in range(texts)], [text(n) for n in range(texts)])
    assert (back.methods["dynatree"].verdict, back.changed) == ("faster", False)


def test_another_load_of_the_machine_is_no_slowdown() -> None:
    found = compared([text(n) for n in range(5)], [text(n, 1, load=2.0) for n in range(5)])
    assert (found.methods["dynatree"].verdict, found.changed) == ("cannot tell", False)
    assert found.methods["dynatree"].ratio == pytest.approx(1, abs=0.05)
    assert found.methods["ar"].ratio == pytest.approx(0.5, abs=0.05)


def test_of_one_method_recorded_twice_few_pairs_show_a_change() -> None:
    found = [compared([text(n, 2 * k) for n in range(6)], [text(n, 2 * k + 1) for n in range(6)]) for k in range(16)]
    assert sum(each.methods["dynatree"].verdict != "cannot tell" for each in found) <= 3


def test_runs_are_paired_by_their_prompt_in_order_and_the_others_are_counted() -> None:
    found = compared([text(1), text(2), text(1, 3)], [text(1, 1), text(3), text(1, 2)])
    assert (found.texts, found.unpaired_a, found.unpaired_b) == (2, 1, 1)
    assert "1 of A, 1 of B" in "\n".join(told(found))
    with pytest.raises(RecordingError, match="have no prompt in common; record both with the same prompts"):
        compared([text(1)], [text(2)])


def test_another_text_under_the_same_settings_is_told() -> None:
    *others, last = text(1)
    moved = [structs.replace(event, committed=[7, 7, 7]) if event == others[50] else event for event in others]
    assert moved != others
    found = compared([text(1)], [[*moved, last]])
    assert found.changed
    assert sum(each.different_texts for each in found.methods.values()) == 1
    warmer = [[structs.replace(event, temperature=0.7) if event == others[0] else event for event in [*moved, last]]]
    unlike = compared([text(1)], warmer).methods["dynatree"]
    assert (unlike.compared_texts, unlike.different_texts) == (0, 0)


def test_without_plain_decoding_in_both_nothing_is_judged() -> None:
    found = compared([text(1, plain=False)], [text(1, 1, 3.0)])
    own = found.methods["dynatree"]
    assert (own.verdict, found.changed) == ("cannot tell", False)
    assert own.ratio == pytest.approx(1 / 3, rel=0.1)
    assert own.reason is not None
    assert "load" in own.reason


def test_a_short_text_has_a_reason_instead_of_a_ratio() -> None:
    found = compared([text(1)[:6]], [text(1)])
    assert (found.methods["dynatree"].ratio, found.methods["dynatree"].reason) == (None, "warming up")
    assert "warming up" in "\n".join(told(found))


def test_the_object_has_every_figure() -> None:
    found = compared([text(1)], [text(1, 1)])
    assert json.decode(json.encode(found), type=Comparison) == found
