"""The text panel, its inks, cursor and paging, and the inspector that explains how a token was chosen."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from textual.theme import BUILTIN_THEMES

from decoder.append_only import SharedList
from decoder.events import End, Event, Knobs, Round
from dynatui.render.ink import Rows
from dynatui.render.inspect import inspect
from dynatui.render.palette import palette
from dynatui.render.scene import HEATS, Heat, Scene
from dynatui.render.text import HOT, TextPanel, inks, legend, time_edges, tokens_ahead
from dynatui.state.run_state import Failure, Loading, RunState
from dynatui.state.tokens import Token
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, story, tree_round

LOADING = [
    Loading("importing torch", at_s=0.5),
    Loading("loading target x", at_s=3.75),
    Loading("loading target x", "20 % of its weights", 3.75),
    Loading("loading target x", "60 % of its weights", 3.75),
]
LONG_PROMPT = "Given this " + "very " * 100 + "long\ncontext,  答えはどこですか where is it?"


def worded(number: int, first: str, second: str, rest: str) -> Event:
    return structs.replace(tree_round(number), text=first + second + rest, pieces=["", first, "", second, "", ""])


def long_run(rounds: int = 60) -> RunState:
    told = (worded(n, f" at{n}", f" b{n}", "\n" if n % 10 == 9 else f" c{n}") for n in range(rounds))
    return state_of([run(), *told])


def numbered(rounds: int, prompt: str = "Once upon") -> Scene:
    return Scene(state_of([run(prompt=prompt), *(tree_round(n, f" word{n}") for n in range(rounds))]), beside=False)


def chosen(rows: Rows) -> list[str]:
    return [text for row in rows for text, ink in row if ink == "caret"]


def at(panel: TextPanel, state: RunState, width: int = 50, height: int = 12, cursor: int | None = None) -> Rows:
    return panel(Scene(state, cursor=cursor, beside=False), width, height)


def failed(message: str) -> Scene:
    return Scene(structs.replace(RunState(), failure=Failure(message, 3)))


def unseen(first: str) -> RunState:
    event = structs.replace(tree_round(0), pieces=["", first, "", "\n", "", ""], text=f"{first}\n end")
    return state_of([run(prompt="Once"), event])


def test_the_newest_text_is_always_in_view_and_a_full_page_moves_up_by_more_than_a_line() -> None:
    panel, moving, tops = TextPanel(), TextPanel(), list[str]()
    for number in range(30):
        page = lines(panel(numbered(number), 30, 7))
        assert any(f"word{number - 1}" in line for line in page) or number == 0
        tops.append(lines(at(moving, state_of([run(), *map(tree_round, range(number))]), 40, 10))[2])
    assert 1 < len(set(tops)) < 8


def test_the_cursor_is_on_its_token() -> None:
    state = long_run()
    for cursor in (0, 1, 40, len(state.lane.tokens) - 1):
        rows = at(TextPanel(), state, 60, 8, cursor)
        assert "".join(chosen(rows)).strip() == (state.lane.tokens[cursor].text.strip() or "⏎")


def test_the_view_follows_the_cursor_and_stays_while_it_is_in_view_and_goes_back_to_the_pen() -> None:
    panel, state = TextPanel(), long_run()
    tops = list[str]()
    for cursor in range(len(state.lane.tokens)):
        rows = at(panel, state, cursor=cursor)
        assert chosen(rows)
        tops.append(lines(rows)[2])
    assert 1 < len(set(tops)) < len(state.lane.tokens) / 20
    at(panel, state, cursor=0)
    assert any("▌" in line for line in lines(at(panel, state)))


def test_a_click_finds_the_token_that_is_drawn_there() -> None:
    panel, state = TextPanel(), long_run()
    for y, row in enumerate(lines(at(panel, state))):
        for x in range(50):
            index = panel.token_at(x, y)
            if index is not None:
                assert row[x] in f"{state.lane.tokens[index].text} "
                assert chosen(at(panel, state, cursor=index))
    assert panel.token_at(0, 0) is panel.token_at(500, 500) is panel.token_at(12, 1) is None
    at(panel, running().state, 60, 6)
    assert (panel.token_at(3, 1), panel.token_at(12, 1)) == (None, 0), "the prompt is no token"
    panel(Scene(), 60, 6)
    assert {panel.token_at(x, y) for x in range(60) for y in range(6)} == {None}


def test_the_cursor_moves_to_the_line_below_and_back() -> None:
    panel, state = TextPanel(), long_run()
    at(panel, state)
    below = panel.moved(30, 1)
    assert below > 32
    assert abs(panel.moved(below, -1) - 30) <= 1
    assert panel.moved(0, -1) == 0
    assert panel.moved(30, 10**6) > len(state.lane.tokens) - 15


def test_the_cursor_passes_empty_lines_and_goes_to_the_end_of_shorter_ones() -> None:
    panel = TextPanel()
    event = structs.replace(tree_round(0), pieces=["", "a", "", "\n\n\n", "", ""], text="a\n\n\nb")
    at(panel, state_of([run(prompt=""), event]), 40, 9)
    assert [panel.moved(0, 1), panel.moved(0, 9), panel.moved(2, -9)] == [1, 2, 0]
    words = [("one", " two", " three\n"), ("a", " b", "\n"), ("four", " five", " six")]
    at(panel, state_of([run(prompt=""), *(worded(number, *text) for number, text in enumerate(words))]), 40, 9)
    assert (panel.moved(2, 1), panel.moved(8, -1)) == (5, 5)


@pytest.mark.parametrize(
    ("before", "state", "size"),
    [
        ((running().state, 60, 8), running().state, (30, 8)),
        ((long_run(), 50, 12), long_run(rounds=20), (50, 12)),
        ((running().state, 60, 8), state_of([run(prompt="Twice")]), (60, 8)),
        ((numbered(1, "Once").state, 60, 8), numbered(1, "Twice").state, (60, 8)),
    ],
    ids=["at another width", "of the past", "of another prompt", "of another prompt with as many rounds"],
)
def test_what_was_drawn_before_does_not_matter_to_a_view(
    before: tuple[RunState, int, int], state: RunState, size: tuple[int, int]
) -> None:
    panel = TextPanel()
    at(panel, *before)
    assert lines(at(panel, state, *size)) == lines(at(TextPanel(), state, *size))


@settings(max_examples=60)
@given(st.lists(st.tuples(scenes(), SIZES), min_size=1, max_size=4))
def test_any_scene_fits_any_size_whatever_was_drawn_before(looks: list[tuple[Scene, tuple[int, int]]]) -> None:
    panel = TextPanel()
    for scene, size in looks:
        count = len(scene.state.lane.tokens)
        assert is_drawn(panel(scene, *size), scene, size)
        assert all(0 <= panel.moved(min(index, max(0, count - 1)), 1) <= count for index in (0, 3, 99))
        assert panel.token_at(size[0] // 2, size[1] // 2) in {None, *range(count)}


def beside(rounds: int, plain: int, prompt: str = "Once upon") -> Scene:
    """The same text in rounds of three tokens, and of one token, in 20 ms each."""
    told = (tree_round(number, f" word{number}") for number in range(rounds))
    alone = (plain_round("ar", place, (" a", "t", f" word{place // 3}")[place % 3]) for place in range(plain))
    return Scene(state_of([run(prompt=prompt), *told, *alone]))


def test_the_gap_is_that_after_the_same_decode_time_and_stays_once_one_has_finished() -> None:
    end = End(method="dynatree", reason="length")
    plain = [plain_round("ar", number) for number in range(30)]
    for count in (4, 10, 30):
        events: list[Event] = [run(), *map(tree_round, range(4)), end, *plain[:count]]
        scene = Scene(state_of(events))
        assert tokens_ahead(scene.state) == 12 - min(count, 4)
        assert "8 ahead at the end" in "\n".join(lines(TextPanel()(scene, 70, 12)))
    slower = state_of([run(), tree_round(0), *(structs.replace(each, t=each.t / 9) for each in plain)])
    assert tokens_ahead(slower) == 3 - 9


def test_a_click_finds_tokens_of_the_method_beside_the_other_text_and_below_it() -> None:
    for width, height in ((90, 14), (42, 14)):
        panel, scene = TextPanel(), beside(9, 9)
        rows = lines(panel(scene, width, height))
        found = {(x, y): panel.token_at(x, y) for y in range(height) for x in range(width)}
        tokens = scene.state.lane.tokens
        assert {index for index in found.values() if index is not None} >= {5, len(tokens) - 1}
        for (x, y), index in found.items():
            assert index is None or rows[y][x] in f"{tokens[index].text} "
        assert not any(index is not None for (x, y), index in found.items() if y <= 1)


def token(probability: float | None = None, spent_s: float = 0.01, number: int = 0) -> Token:
    return Token("x", "bonus" if probability is None else "accepted", number, 1, 1, probability, spent_s)


TIMED = [token(spent_s=value) for value in (0.004, 0.007, 0.010, 0.015, 0.030)]


@given(st.lists(st.floats(allow_nan=True), max_size=5))
def test_any_times_have_edges(times: list[float]) -> None:
    tokens = [token(spent_s=value) for value in times]
    assert len(time_edges(tokens)) == len(HOT) - 1
    assert all(inks("time", tokens)(each) in HOT for each in tokens)


def test_every_class_differs_without_colours() -> None:
    variables = BUILTIN_THEMES["textual-dark"].to_color_system().generate()
    styles = palette(variables, color=False)
    assert len({str(styles[ink]) for ink in (*HOT, "bonus", "prompt", "caret")}) == len(HOT) + 3
    assert str(styles["band"]) != str(styles["plain"])
    assert len(HEATS) == len(get_args(Heat))


COMPARED: list[Event] = [run(), tree_round(0), *(plain_round("ar", number) for number in range(5)), tree_round(1)]
WHOLE_PATH = {"accepted": [1, 3, 5], "committed": [11, 13, 15, 7]}
HIDDEN = {"draft_forwards": None, "draft_s": None, "verify_s": None, "commit_s": None}


def panel(state: RunState, cursor: int, size: tuple[int, int] = (76, 9)) -> Rows:
    return inspect(Scene(state, cursor=cursor), *size)


def of(event: Round, cursor: int = 0, size: tuple[int, int] = (76, 9), methods: Sequence[str] = ("dynatree",)) -> Rows:
    return panel(state_of([run(methods), event]), cursor, size)


def tree(**changed: Any) -> Round:
    return structs.replace(tree_round(0), **changed)


def burst(number: int) -> Round:
    told = plain_round("hf", number)
    return structs.replace(told, draft_forwards=None, position=4 * number, committed=[1, 2, 3, 4])


def near_tie() -> RunState:
    state = state_of(story())
    figures = {name: structs.replace(each, near_tie=True) for name, each in state.figures().items()}
    return structs.replace(state, summary=figures)


def without_rounds() -> RunState:
    known = running().state
    return structs.replace(known, lanes={"dynatree": structs.replace(known.lane, past=SharedList())})


test_golden = golden(
    {
        "before the first run the panel says what is loading": lambda: TextPanel()(
            Scene(state_of(LOADING), waited_s=7.4), 70, 12
        ),
        "a failure says what to do": lambda: TextPanel()(failed("no model at /nowhere; give a folder"), 70, 12),
        "a round is one band with its gaps": lambda: TextPanel()(
            Scene(running().state, heat="round", beside=False), 60, 6
        ),
        "each origin has its own ink and heat inks what the draft gave little": lambda: [
            inked(TextPanel()(Scene(running().state, heat=heat, beside=False), 60, 6)) for heat in HEATS
        ],
        "every legend names the numbers that the inks follow": lambda: [
            legend(Scene(running().state, heat=heat), 90) for heat in HEATS
        ],
        "without a draft and without rounds there is a legend too": lambda: [
            legend(Scene(state_of([run(("ar",)), *rounds]), heat=heat), 70)
            for rounds in ((), (plain_round("ar", 0),))
            for heat in HEATS
        ],
        "of a long failure the beginning and the keys that help stay": lambda: [
            TextPanel()(failed(f"no model at {'/nowhere' * 200}; give a folder"), 70, height) for height in (6, 7, 12)
        ],
        "tokens that are not to be seen have a sign under the cursor at the end of a full line too": lambda: [
            *(inked(at(TextPanel(), unseen(""), 40, 6, cursor)) for cursor in range(3)),
            inked(at(TextPanel(), unseen(" abcdef"), 15, 6, 1)),
        ],
        "the prompt stays in view above a text that has left it behind": lambda: [
            at(TextPanel(), long_run()),
            at(TextPanel(), long_run(), 50, 7),
            at(TextPanel(), running().state),
            TextPanel()(numbered(60, LONG_PROMPT), 50, 12),
        ],
        "the method and plain decoding write side by side from the same line and the gap grows": lambda: [
            *(TextPanel()(beside(number, number), 70, 12) for number in (2, 5, 9)),
            TextPanel()(beside(60, 60), 70, 12),
        ],
        "in a narrow panel one stands below the other and a low one has the method alone": lambda: [
            TextPanel()(beside(60, 60), 42, height) for height in (10, 7)
        ],
        "the method stands alone if asked or if it is plain decoding or without it": lambda: [
            TextPanel()(scene, 70, 12)
            for scene in (
                replace(beside(5, 5), beside=False),
                replace(beside(5, 5), mode="inspect"),
                Scene(state_of([run(("dynatree",)), *map(tree_round, range(5))])),
                Scene(structs.replace(beside(5, 5).state, chosen="ar")),
            )
        ],
        "the confidence says on which side of the thresholds it is": lambda: [
            of(tree(knobs=Knobs(tau_h=high, tau_l=low, d0=5)))
            for high, low in ((0.6 - 1e-9, 0.4), (0.9, 0.4), (0.9, 0.7))
        ],
        "an accepted guess tells its story": lambda: panel(running().state, 4),
        "with much room nothing is cut": lambda: panel(running().state, 4, (30, 24)),
        "a guess that was looked up is none of the drafts": lambda: [
            of(tree(origins=["root", "lookup", *["draft"] * 4]), cursor) for cursor in (0, 1)
        ],
        "a second choice says what the draft preferred": lambda: of(
            tree(accepted=[2], committed=[12, 5], text=" the x")
        ),
        "an only guess says so": lambda: of(tree(**WHOLE_PATH), 2),
        "where every guess lost the target speaks": lambda: of(tree(accepted=[], committed=[7], text=" one")),
        "behind the last guess of a tree there was none": lambda: of(tree(**WHOLE_PATH), 3),
        "a lost root of a method that drafts its root is named": lambda: of(
            tree(method="alg1", accepted=[], committed=[7], knobs=None, logprobs=[-1.0] * 6), methods=("alg1",)
        ),
        "the knobs are those of the round and not of now": lambda: [panel(state_of(story()), at) for at in (0, 17)],
        "the comparison with ar knows before at and behind the difference": lambda: [
            *(panel(state_of(COMPARED), cursor) for cursor in (1, 2, 3, 4)),
            panel(state_of(COMPARED[:4]), 2),
            of(tree_round(0), 1),
        ],
        "a near tie is called one": lambda: panel(near_tie(), 3),
        "sampling draws instead of choosing": lambda: panel(
            state_of([structs.replace(run(), temperature=0.8), tree_round(0)]), 0
        ),
        "what a method does not tell is not made up": lambda: [
            of(structs.replace(plain_round("hf", 0), **HIDDEN), methods=("hf",)),
            of(plain_round("ar", 0), methods=("ar",)),
        ],
        "with little room the first questions are answered and what is cut says so": lambda: [
            *(panel(running().state, 4, size) for size in ((72, 7), (76, 5), (30, 7))),
            of(tree_round(0), 0, (72, 5)),
        ],
        "the index is that among all generated tokens": lambda: panel(
            state_of([run(("hf",)), *map(burst, range(3))]), 2
        ),
        "a token whose round is not known still has a name": lambda: panel(without_rounds(), 0),
        "no probability is called nothing while it is something": lambda: of(
            tree(logprobs=[0.0, *[math.log(0.004)] * 5])
        ),
        "without a cursor the panel says what it is for": lambda: inspect(Scene(), 76, 5),
        "what the draft gave little and what took twice the median is hot and rounds alternate": lambda: [
            " ".join(map(inks("probability", ()), map(token, (1.0, 0.8, 0.7, 0.5, 0.3, 0.2, 0.0, None)))),
            " ".join(map(inks("time", TIMED), TIMED)),
            " ".join(inks("round", ())(token(chance, number=place)) for place in (4, 5, 6) for chance in (0.5, None)),
        ],
        "edges of times hardly move": lambda: [time_edges([token(spent_s=time)]) for time in (0.01001, 0.01004)],
        "a legend keeps every class where there is little room": lambda: [
            inked([legend(Scene(running().state, heat=heat), room)]) for heat in HEATS for room in (38, 70, 120)
        ],
    }
)
