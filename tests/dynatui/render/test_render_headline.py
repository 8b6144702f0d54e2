"""Tests of the sentence at the top of the screen: its claims, and its place at the beginning at every width."""

import pytest
from msgspec import structs

from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Event, Summary
from dynatui.render.headline import compared, headline
from dynatui.render.ink import Row
from dynatui.render.scene import Scene
from dynatui.render.status import essentials, status
from dynatui.state.run_state import RunState
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, raced, run, state_of, story, tree_round


def text_of(row: Row) -> str:
    return "".join(text for text, _ in row)


def measured(speedup: float, *, same: bool = True) -> RunState:
    took_s = 3 * 0.02 / speedup
    trees = [structs.replace(tree_round(number), t=took_s * (number + 1)) for number in range(WARM_UP_TOKENS)]
    plain = [plain_round("ar", number) for number in range(3 * WARM_UP_TOKENS)]
    events: list[Event] = [run(("dynatree", "ar")), *raced(trees, plain)]
    told = dict(state_of(events).figures())
    told["dynatree"] = structs.replace(told["dynatree"], committed=256, target_forwards=70, identical_to_ar=same)
    told["ar"] = structs.replace(told["ar"], committed=256)
    return state_of([*events, Summary(methods=told)])


@pytest.mark.parametrize(
    ("speedup", "words", "ink"),
    [
        (1.326, "1.33x the speed of plain decoding", "good"),
        (1.003, "1.00x the speed of plain decoding", "plain"),
        (0.931, "0.93x the speed of plain decoding", "warn"),
    ],
)
def test_the_headline_says_how_fast_in_how_many_passes_and_that_the_text_is_the_same(
    speedup: float, words: str, ink: str
) -> None:
    longest = headline(measured(speedup))[0]
    assert text_of(longest) == f"{words} · 256 tokens in 70 passes · same text"
    assert longest[0] == (words, ink)


def test_it_stands_first_at_every_width() -> None:
    scene = Scene(measured(1.33))
    for width in range(5, 201):
        (line,) = lines(status(scene, width, 1))
        assert line.startswith("1.33x")
        assert len(line) == width
        assert lines(essentials(scene, width, 1))[0].startswith("1.33x")


def test_before_both_methods_are_warm_it_claims_no_speed() -> None:
    rounds = [tree_round(number) for number in range(WARM_UP_TOKENS)]
    cold = state_of([run(), *rounds, plain_round("ar", 0)])
    assert "x" not in text_of(headline(cold)[0]).split()[0]
    warm = state_of([run(), *raced(rounds, (plain_round("ar", place) for place in range(WARM_UP_TOKENS)))])
    assert "plain decoding" in text_of(headline(warm)[0])


def test_one_token_in_one_pass_is_said_in_the_singular() -> None:
    first = structs.replace(tree_round(0), accepted=[], committed=[11])
    assert text_of(headline(state_of([run(("dynatree",)), first]))[0]) == "1 token in 1 pass"


def test_plain_decoding_itself_is_compared_with_nothing() -> None:
    state = structs.replace(state_of(story()), chosen="ar")
    assert text_of(headline(state)[0]).startswith("plain decoding · ")
    assert compared(state) == ()


test_golden = golden(
    {
        "its wordings get shorter and end with the speed alone": lambda: headline(measured(1.33)),
        "at 80 columns it is whole": lambda: status(Scene(measured(1.33)), 80, 1),
        "before there is text there is no headline": lambda: (headline(state_of([run()])), headline(RunState())),
        "a text that is not that of ar is never called the same": lambda: headline(measured(1.33, same=False)),
    }
)
