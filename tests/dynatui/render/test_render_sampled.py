"""The panels for sampled runs and drawn trees: settings, chances, draws, the verifier's actions, and the light."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from decoder.analysis.losslessness import Evidence
from decoder.analysis.metrics import fold
from decoder.analysis.what_if import what_if
from decoder.events import Event, Knob, Round, Summary, Verification
from decoder.methods.dynatree import DynaTree
from dynatui.render import cards, curves, drawer, sliders, versus
from dynatui.render.cards import compared
from dynatui.render.ink import Rows
from dynatui.render.inspect import inspect
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.sampling import INKS, light_words, sampling
from dynatui.render.scene import Scene
from dynatui.render.status import status, tabs
from dynatui.render.tree import tree
from dynatui.render.words import drawing_words, sampling_words, shape_sentence, shape_words
from dynatui.state.run_state import Prompt, RunState
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import (
    HOSTILE,
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    sampled_round,
    sampled_run,
    state_of,
    tree_round,
    turned_temperature,
)

GREEDY = state_of([run(), tree_round(0)])


def sampled(*more: Event, methods: tuple[str, ...] = ("dynatree", "ar")) -> RunState:
    return state_of([sampled_run(methods), sampled_round(0), *more])


def burst(number: int, token: int = 50) -> Round:
    plain = structs.replace(plain_round("hf", number), draft_forwards=None, position=2 * number)
    return structs.replace(plain, committed=[token, token])


def with_hf(watched: str = "hf") -> RunState:
    events = [*(burst(number) for number in range(2)), *(plain_round("ar", number) for number in range(4))]
    return structs.replace(sampled(*events, methods=("dynatree", "ar", "hf")), chosen=watched)


def over() -> RunState:
    events: list[Event] = [sampled_run(), sampled_round(0), plain_round("ar", 0)]
    return state_of([*events, Summary(methods=fold(events).figures())])


def inspected(state: RunState, cursor: int, size: tuple[int, int] = (90, 10)) -> Rows:
    return inspect(Scene(state, cursor=cursor), *size)


def first_line(state: RunState, width: int = 140, *, replaying: bool = False) -> Rows:
    return status(Scene(state, replaying=replaying), width, 1)


COOLED = turned_temperature("dynatree", 1, 0.6, 0.0)
WARMED = (run(), tree_round(0), turned_temperature("dynatree", 1, 0.0, 1.5), sampled_round(1))
IMPOSSIBLE = state_of([structs.replace(sampled_run(), temperature=9.0), sampled_round(0)])
TURNED_LATE = state_of([sampled_run(), *map(sampled_round, range(3)), turned_temperature("dynatree", 3, 0.6, 0.7)])


def test_the_text_is_coloured_by_what_the_draft_itself_gave() -> None:
    assert [token.probability for token in sampled().lane.tokens][:2] == pytest.approx([0.06, 0.05])


def test_what_if_goes_by_the_chances_that_the_rules_went_by() -> None:
    rules = DynaTree(history=False)
    past = [sampled_round(number) for number in range(12)]
    found = what_if(past, rules)
    assert found is not None
    assert found == what_if([tree_round(number) for number in range(12)], rules)
    assert found != what_if([structs.replace(event, logprobs=event.draft_logprobs) for event in past], rules)


def drawers() -> list[Scene]:
    state = sampled(turned_temperature("dynatree", 1, 0.6, 0.8))
    own = Scene(state, slider="temperature")
    return [own, replace(own, state=structs.replace(state, chosen="ar"), pending={"temperature": 0.8})]


TURNS: Sequence[tuple[Any, float]] = (("verifier", 5.0), ("drafting", 1.0), ("rollouts", 3.0))
DIED_OUT = structs.replace(drawn_round(0), accepted=[1, 2, 3], committed=[11, 13, 14, 100])


def drawn(*more: Event, first: Round | None = None) -> RunState:
    return state_of([delayed_run(), first or drawn_round(0), *more])


def turn(name: Any, new: float, at: int = 1, old: float = 0) -> Knob:
    return Knob(method="delayed", round=at, name=name, old=old, new=new, source="user")


def judging_whole_paths() -> Round:
    event = drawn_round(0)
    assert event.verification is not None
    path = [structs.replace(draws, acceptance=None) for draws in event.verification.path]
    return structs.replace(event, verification=structs.replace(event.verification, path=path))


CHOSEN = state_of([delayed_run(), turn("drafting", 3, at=0, old=2), structs.replace(drawn_round(0), shape=(4, 0, 3))])


def explained(state: RunState, cursor: int) -> Rows:
    return inspect(Scene(state, cursor=cursor), 240, 12)


def test_long_names_are_cut_before_counts_and_chances() -> None:
    deep = structs.replace(
        drawn_round(0),
        tokens=list(range(6)),
        parents=list(range(-1, 5)),
        logprobs=[math.log(0.5)] * 6,
        pieces=[" extraordinary"] * 6,
        drawn=[1, *[2] * 5],
        verification=Verification(surprise=0, surprise_variance=1, top1=0, top1_variance=1, reach=[0.62] * 6),
    )
    for width in range(38, 120):
        page = "\n".join(lines(tree(Scene(drawn(first=deep)), width, 16)))
        assert len(re.findall(r"[●○] ext[a-z…]+ +x2( 50%)? 62%", page)) == 5


TURN = Knob(method="delayed", round=20, name="verifier", old=7, new=5, source="user")


def lit(rounds: int, *more: Event, surprise: float = 0.0) -> RunState:
    told = [drawn_round(number, generator=surprise) for number in range(rounds)]
    return state_of([delayed_run(), *told, *more])


def page(state: RunState, width: int = 120, height: int = 30) -> Rows:
    return sampling(Scene(state), width, height)


def coupled(rounds: int, **verification: Any) -> RunState:
    told = drawn_round(0, generator=0.0).verification
    assert told is not None
    own = structs.replace(told, predicted_tokens=None, reach=[], path=[], **verification)
    return state_of([sampled_run(), *(structs.replace(sampled_round(n), verification=own) for n in range(rounds))])


def certain() -> RunState:
    state = lit(40)
    surprise = structs.replace(state.lane.evidence.surprise, variance=0.1)
    lane = structs.replace(state.lane, evidence=Evidence(surprise=surprise, top1=surprise))
    return structs.replace(state, lanes={**state.lanes, "delayed": lane})


def test_each_colour_has_an_ink_of_its_own() -> None:
    assert len(set(INKS.values())) == len(INKS)
    assert light_words(lit(40, surprise=-3.0))[0][0][1] == "bad"
    assert light_words(state_of([sampled_run(), sampled_round(0)])) == ()


test_golden = golden(
    {
        "the first line says how tokens are drawn": lambda: (
            first_line(sampled()),
            first_line(state_of([structs.replace(sampled_run(top_p=1.0), top_k=40)])),
            first_line(sampled(), 80),
        ),
        "a turn that the watched method has not come to is shown beside what is in force": lambda: [
            sampling_words(sampled(), {"temperature": 0.7, "top_p": 1.0}),
            sampling_words(state_of([run()]), {"temperature": 0.5}),
            status(Scene(sampled(), pending={"temperature": 0.7}), 140, 1),
        ],
        "two recordings say how each was drawn": lambda: [
            versus.heading(0, "a.jsonl", state, 140) for state in (sampled(), GREEDY)
        ],
        "the first line of a greedy run says so and no seed": lambda: first_line(GREEDY),
        "the first line follows the turns of the watched method": lambda: [
            first_line(structs.replace(sampled(COOLED), chosen=name), replaying=replaying)
            for name in ("dynatree", "ar")
            for replaying in (False, True)
        ],
        "the tree shows what the draft gives a token beside its chance": lambda: tree(Scene(sampled()), 92, 14),
        "the tree explains its figures where there is room": lambda: [
            tree(Scene(state), width, height)
            for state, width, height in ((sampled(), 80, 16), (sampled(), 80, 8), (sampled(), 42, 16), (GREEDY, 46, 14))
        ],
        "a drawn token tells both probabilities what they are and how it was drawn": lambda: [
            inspected(sampled(), 1, (120, 10)),
            inspected(GREEDY, 1),
        ],
        "a token of a sharpened greedy round tells both probabilities and no noise": lambda: inspected(
            state_of([run(), sampled_round(0)]), 1, (120, 10)
        ),
        "what was drawn before a turn is told as drawn and what was chosen after it as chosen": lambda: [
            inspected(state, cursor)
            for state in (sampled(COOLED, tree_round(1)), state_of(WARMED))
            for cursor in (2, 3)
        ],
        "a method that is compared keeps its verdict beside hf": lambda: (
            compared(with_hf("dynatree")),
            race(Scene(with_hf("dynatree")), 100, 9),
            race(Scene(with_hf("dynatree")), 60, 9),
            race(Scene(structs.replace(with_hf("dynatree"), chosen="ar")), 60, 9),
        ),
        "hf is said to draw alone wherever it would be compared": lambda: (
            compared(with_hf()),
            *(race(Scene(with_hf()), width, 20) for width in (120, 60)),
            inspected(with_hf(), 0),
            prompts(Scene(structs.replace(with_hf(), prompt=Prompt(1, 1))), 110, 10),
        ),
        "greedy hf is compared as ever": lambda: [
            shown(state_of([run(("hf", "ar")), burst(0), plain_round("ar", 0)]))
            for shown in (compared, lambda state: race(Scene(state), 100, 20))
        ],
        "the drawer has temperature and top p of the watched method": lambda: [
            drawer.drawer(scene, 120, 20) for scene in drawers()
        ],
        "a replayed run that is over still says how it was drawn": lambda: [
            first_line(over(), replaying=True),
            inspected(over(), 0),
        ],
        "a recording that claims an impossible temperature has no sliders for it": lambda: [
            first_line(IMPOSSIBLE),
            drawer.drawer(Scene(IMPOSSIBLE), 120, 20),
        ],
        "a turn of the temperature is a mark on the curves": lambda: curves.depth(Scene(TURNED_LATE), 80, 12),
        "a shape that the selector chose is called its choice": lambda: shape_sentence(CHOSEN, CHOSEN.lane.past[0]),
        "the tree says its shape what was expected and what the columns mean": lambda: (
            tree(Scene(drawn()), 80, 18),
            tree(Scene(drawn()), 46, 10),
        ),
        "a shape is told in plain words": lambda: [
            shape_words(shape) for shape in ((2, 1, 3), (3, 0, 4), (1, 2, 2), (4, 5, 0), (0, 1, 0))
        ],
        "verifier drafting and shape are those in force and of methods that draw trees": lambda: [
            drawing_words(state)
            for state in (
                drawn(*(turn(name, new) for name, new in TURNS)),
                state_of([sampled_run(), sampled_round(0)]),
                structs.replace(drawn(), chosen="ar"),
                *(state_of([structs.replace(sampled_run(), verifier=name)]) for name in ("nss", HOSTILE)),
            )
        ],
        "the first line says verifier drafting and shape": lambda: [
            *(status(Scene(drawn()), width, 1) for width in (160, 120)),
            status(Scene(drawn(), pending={"verifier": 6.0}), 160, 1),
        ],
        "the card and the knobs say them too": lambda: [
            cards.cards(Scene(drawn()), 80, 3),
            sliders.knobs(Scene(drawn()), 120, 5),
        ],
        "the colour is the chance to be kept and so is the bar at the end of a row": lambda: inked(
            tree(Scene(drawn()), 80, 16)
        ),
        "signs that are not there are not explained": lambda: [
            *(tree(Scene(drawn()), width, 18) for width in (46, 80)),
            tree(Scene(drawn(first=drawn_round(0, told=False))), 80, 18),
        ],
        "a token tells how often it was drawn and what the verifier did or refused": lambda: [
            explained(drawn(), cursor) for cursor in (0, 1, 2)
        ],
        "a token after the last draw is the targets alone": lambda: explained(drawn(first=DIED_OUT), 3),
        "the verifier of a round is the one that was in force then": lambda: [
            explained(drawn(turn("verifier", 5, old=7), drawn_round(1)), cursor) for cursor in (1, 4)
        ],
        "a verifier that judges whole paths has no acceptance of one node": lambda: explained(
            drawn(first=judging_whole_paths()), 1
        ),
        "a recording cannot turn it": lambda: sampling(
            Scene(state_of([run(), tree_round(0), plain_round("ar", 0)]), replaying=True), 120, 9
        ),
        "all tabs fit in 80 columns with their names": lambda: tabs(Scene(lit(1)), 80, 1),
        "the light says its colour in words and what it means": lambda: [
            shown
            for state in (lit(40), lit(40, surprise=0.8), lit(40, surprise=-3.0))
            for shown in (page(state, 120, 9), status(Scene(state), 80, 1))
        ],
        "what cannot be judged says why": lambda: [
            page(state, 120, 9)
            for state in (
                *(lit(4), certain(), RunState(), GREEDY, state_of([sampled_run(), sampled_round(0)])),
                lit(20, turned_temperature("delayed", 20, 0.6, 0.0)),
            )
        ],
        "it is called a light and says what it does not see": lambda: page(lit(20)),
        "in little room it says the least of that": lambda: [page(lit(40), 74, 9), page(coupled(20), 74, 9)],
        "the sums are told with their z": lambda: [
            page(lit(40, surprise=0.3)),
            page(lit(40, surprise=0.3), 80, 9),
        ],
        "expected and realised tokens stand side by side with their z": lambda: page(lit(3)),
        "each depth has distance acceptance and bound": lambda: page(lit(20), 80, 9),
        "a verifier that judges whole paths has a dash": lambda: page(
            state_of([delayed_run(), judging_whole_paths()]), 80, 9
        ),
        "the depths are those since the last turn and the light is of the whole run": lambda: page(
            lit(20, TURN, drawn_round(20), drawn_round(21))
        ),
        "where there is no room for all depths it says how many are left out": lambda: page(lit(20), 80, 8),
    }
)
