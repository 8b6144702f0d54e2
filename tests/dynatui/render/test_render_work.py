"""Tests of the work panel: drafted and used tokens by depth, time by stage, tokens by kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.metrics import Tally
from dynatui.render.scene import Scene
from dynatui.render.work import depths, kind_of, kinds, summaries, times_table, work
from dynatui.state.tokens import Token
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, text_of, tree_round

LEVELS = ((40, 20), (20, 15), (10, 1))


def test_a_method_without_guesses_says_so() -> None:
    plain = work(Scene(state_of([run(("ar",)), plain_round("ar", 0)])), 76, 11)
    assert "ar guesses nothing: each token is one pass of the target." in lines(plain)[1]
    hidden = structs.replace(plain_round("hf", 0), draft_forwards=None)
    assert "hf does not show its draft" in lines(work(Scene(state_of([run(("hf",)), hidden])), 76, 11))[1]


def test_times_that_are_not_known_are_dashes_and_leave_no_rest() -> None:
    state = state_of([run(), structs.replace(tree_round(0), draft_s=None)])
    drawn = lines(times_table(state, state.race.tallies["dynatree"], 36))
    assert drawn[1].split() == ["draft", "-", "-", "-"]
    assert [line.split()[0] for line in drawn[1:]] == ["draft", "verify", "commit"]


def test_last_and_mean_are_different_figures() -> None:
    state = state_of([run(), tree_round(0), structs.replace(tree_round(1), draft_s=0.008)])
    assert lines(times_table(state, state.race.tallies["dynatree"], 36))[1].split()[:4] == [
        "draft",
        "8.00",
        "6.00",
        "30%",
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" lady", "words"),
        ("ing", "word parts"),
        (" 42", "numbers"),
        ("\n", "blanks"),
        (" ", "blanks"),
        (".", "punctuation"),
        (" \u201c", "punctuation"),
        ("()", "punctuation"),
        ("();", "punctuation"),
        (" =>", "code and signs"),
        ("x1", "code and signs"),
        (" été", "words"),
        ("世", "word parts"),
        ("\ufffd", "code and signs"),
    ],
)
def test_a_token_is_of_one_kind(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@given(st.text(min_size=1))
def test_every_text_is_of_a_kind(text: str) -> None:
    assert kind_of(text)


def test_kinds_say_how_much_the_draft_guessed() -> None:
    def token(text: str, *, guessed: bool) -> Token:
        return Token(text, "accepted" if guessed else "bonus", 0, 1)

    tokens = [
        token(" a", guessed=True),
        token(" b", guessed=False),
        token(" c", guessed=True),
        token(".", guessed=False),
    ]
    assert text_of(kinds(tokens, 60)[0]) == "guessed: words 67%, punctuation 0%"
    assert kinds([token(" a", guessed=False)], 60) == []


def test_before_the_first_round_the_panel_says_what_will_come() -> None:
    assert "time by stage" in lines(work(Scene(), 76, 5))[1]


@given(scenes(), SIZES)
def test_any_scene_fits_any_size(scene: Scene, size: tuple[int, int]) -> None:
    assert is_drawn(work(scene, *size), scene, size)


@pytest.mark.parametrize("height", range(10, 26))
def test_what_limits_the_method_is_told_in_whole_sentences(height: int) -> None:
    told = [line.strip("│ ") for line in lines(work(running(), 76, height))[1:-1]]
    assert next((line for line in reversed(told) if line), ".").endswith((".", "%", "██"))


def test_the_panel_says_that_a_text_is_not_that_of_plain_decoding() -> None:
    def told(token: int) -> str:
        rounds = [tree_round(number) for number in range(6)]
        plain = structs.replace(plain_round("ar", 0), committed=[11, token])
        state = state_of([run(), *rounds, plain])
        return " ".join(line.strip("│ ") for line in lines(work(Scene(state), 76, 30)))

    assert "Its text differs from the text of ar; the first difference is at token 1." in told(99)
    assert "differs" not in told(13)


test_golden = golden(
    {
        "the panel sums up and gives both tables": lambda: work(running(), 76, 11),
        "bars are as long as what was drafted and full as far as it was used": lambda: depths(LEVELS, 46, 9),
        "the deepest share a row where rows are short": lambda: depths(LEVELS, 46, 3),
        "the rows of a table have one width": lambda: depths(((123456, 7), (1, 1)), 40, 9),
        "the sentence has shorter wordings": lambda: summaries(
            "dynatree", Tally(rounds=40, drafted=70, accepted=36, by_depth=LEVELS)
        ),
        "shares of time add up": lambda: times_table(running().state, running().state.race.tallies["dynatree"], 36),
        "a panel with room says what limits the method": lambda: work(running(), 76, 24),
    }
)
