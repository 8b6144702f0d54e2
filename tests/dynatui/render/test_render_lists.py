"""The log of events, the table of prompts, and the panel of work by depth, stage and kind of token."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import End, Event, Figures, Knob, Round, Summary
from dynatui.render.ink import Rows
from dynatui.render.log import entries, log
from dynatui.render.prompts import prompts
from dynatui.render.scene import Scene
from dynatui.render.work import depths, kind_of, kinds, times_table, work
from dynatui.state.lane import IN_A_ROW
from dynatui.state.run_state import Failure, Loading, Prompt, Record, RunState, apply
from dynatui.state.session_log import Result
from dynatui.state.tokens import Token
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import HOSTILE, plain_round, run, running, state_of, tree_round


def moved(number: int, name: str, old: float, new: float, source: str = "history") -> Event:
    return structs.replace(
        Knob(method="dynatree", round=number, name="d0", old=old, new=new, source="user"), name=name, source=source
    )


def turned(number: int, name: str, old: float, new: float) -> Event:
    return moved(number, name, old, new, "user")


def rounds(first: int, count: int) -> list[Event]:
    return [tree_round(number) for number in range(first, first + count)]


def short(number: int) -> Round:
    return structs.replace(tree_round(number), committed=[11])


def grown(state: RunState, *records: Record) -> RunState:
    return reduce(apply, records, state)


def after_three(*moves: Event) -> RunState:
    return state_of([run(), *rounds(0, 3), *moves])


def told(*moves: Event, size: tuple[int, int] = (120, 7)) -> Rows:
    return log(Scene(after_three(*moves)), *size)


def another(at: str, prompt: str = "Once upon") -> Event:
    return structs.replace(run(), prompt=prompt, started_at=at)


HALVED = turned(3, "n_max", 256, 128)
HELD = [turned(3, "tau_h", 0.5 + 0.05 * step, 0.55 + 0.05 * step) for step in range(6)]
AR = [structs.replace(plain_round("ar", number), committed=[token]) for number, token in enumerate([11, 13, 100, 99])]
DIFFERING: Sequence[Event] = [run(), tree_round(0), tree_round(1), *AR]


def near_ties() -> dict[str, Figures]:
    figures = state_of(DIFFERING).figures()
    return {name: structs.replace(entry, near_tie=True) for name, entry in figures.items()}


BROKEN = End(method="ar", reason="error", error="out of memory")
LOADED: list[Record] = [Loading("reading weights"), run(), tree_round(0), turned(1, "d0", 5, 6), BROKEN]
EARLIER = after_three(
    *(HALVED, short(3), short(4), another("later", f"A second {HOSTILE}")),
    *(tree_round(0), turned(1, "d0", 5, 6), tree_round(1), another("last", "A third")),
)


def test_lines_of_the_users_turns_are_the_marks_of_the_curves() -> None:
    far = [*rounds(3, IN_A_ROW), turned(3 + IN_A_ROW, "d0", 6, 7)]
    state = after_three(turned(3, "d0", 5, 6), *far)
    assert [entry.rounds for entry in entries(state)] == [(mark.first, mark.round) for mark in state.lane.marks]
    assert len(entries(state)) == 2


def test_the_turns_of_the_newest_runs_are_kept() -> None:
    events = [event for number in range(30) for event in (another(str(number)), turned(0, "d0", 5, 6), tree_round(0))]
    assert [one.number for one in state_of(events).earlier] == list(range(10, 30))


FIGURES = Figures(
    rounds=10,
    committed=30,
    tokens_per_round=3.0,
    depth_acceptance=0.5,
    decode_s=0.1,
    tokens_per_second=300.0,
    speedup=2.0,
    identical_to_ar=True,
)
OPENINGS = ("The door opened", "A ship sailed", "The moon rose", "Rain fell")


def table(count: int, current: int = 1, changed: Mapping[str, Any] | None = None) -> Scene:
    results = {
        number: Result(f"Prompt number {number}", "dynatree", FIGURES, done=True) for number in range(1, count + 1)
    }
    if changed:
        results[2] = replace(results[2], figures=structs.replace(FIGURES, **changed))
    return Scene(state_of([Prompt(current, count)]), results=results)


def second_of_four() -> Scene:
    return Scene(state_of([Prompt(2, 4), run(prompt="A ship sailed")]), openings=OPENINGS)


LEVELS = ((40, 20), (20, 15), (10, 1))
HIDDEN = structs.replace(plain_round("hf", 0), draft_forwards=None)


def timed(*rounds: Round) -> Rows:
    state = state_of([run(), *rounds])
    return times_table(state, state.race.tallies["dynatree"], 36)


def compared(token: int) -> Rows:
    plain = structs.replace(plain_round("ar", 0), committed=[11, token])
    events: list[Event] = [run(), *(tree_round(number) for number in range(6)), plain]
    return work(Scene(state_of(events)), 76, 30)


GUESSED, OWN = Token(" a", "accepted", 0, 1), Token(" a", "bonus", 0, 1)
KINDS = {
    "words": (" lady", " été"),
    "word parts": ("ing", "世"),
    "numbers": (" 42",),
    "blanks": ("\n", " "),
    "punctuation": (".", " \u201c", "()", "();"),
    "code and signs": (" =>", "x1", "\ufffd"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_is_of_one_kind(kind: str) -> None:
    assert {text: kind_of(text) for text in KINDS[kind]} == dict.fromkeys(KINDS[kind], kind)


@given(st.text(min_size=1))
def test_every_text_is_of_a_kind(text: str) -> None:
    assert kind_of(text)


test_golden = golden(
    {
        "special tokens that were not added to the prompt are told": lambda: entries(
            state_of([structs.replace(run(), repeated_start=f"<s>{HOSTILE}")])
        ),
        "a move of history is told with its reason in fewer words or none where it is narrow": lambda: [
            told(moved(3, "d0", 5.4, 5.6), size=size) for size in ((120, 5), (72, 5), (36, 5))
        ],
        "a turn of the user is told with what came of it": lambda: told(HALVED, short(3), short(4)),
        "a turn that no round obeyed says so": lambda: told(turned(3, "history", 1, 0)),
        "a held key is one line from its first value to its last": lambda: told(
            *HELD, tree_round(3), turned(4, "tau_h", 0.8, 0.85), tree_round(4)
        ),
        "a turn that history has moved back is told as any other": lambda: told(
            turned(3, "d0", 5, 8), tree_round(3), moved(4, "d0", 8, 6.4)
        ),
        "small steps in one direction are told as one": lambda: told(
            moved(3, "tau_h", 0.9, 0.91), moved(4, "tau_h", 0.91, 0.93), moved(5, "tau_h", 0.93, 0.92)
        ),
        "loading comes first and ends last": lambda: log(Scene(state_of(LOADED)), 80, 6),
        "the first difference from ar is told at its round": lambda: [
            log(Scene(state_of([*DIFFERING, turned(5, "d0", 5, 6)])), 120, 6),
            log(Scene(state_of([*DIFFERING, Summary(methods=near_ties())])), 120, 6),
        ],
        "an empty log says what will be told": lambda: log(Scene(), 90, 5),
        "the newest lines are shown where there is no room for all": lambda: told(
            *(turned(number, ("d0", "n_max")[number % 2], number, number + 1) for number in range(3, 30)),
            size=(120, 12),
        ),
        "a failure stays on one line": lambda: log(Scene(state_of([run(), Failure(f"broken\n{HOSTILE}", 3)])), 60, 5),
        "turns of earlier prompts are listed under their prompts": lambda: log(Scene(EARLIER), 120, 12),
        "the table scrolls to the current prompt and to the cursor": lambda: [
            *(prompts(table(20, current), 80, 9) for current in (1, 7, 20)),
            *(prompts(replace(table(40), chosen_prompt=33), 60, height) for height in (4, 5, 9)),
        ],
        "a session without turns has no lines of earlier prompts": lambda: entries(
            state_of([run(), tree_round(0), another("later")])
        ),
        "kinds say how much the draft guessed": lambda: [
            kinds([GUESSED, OWN, GUESSED, replace(OWN, text=".")], 60),
            kinds([OWN], 60),
        ],
        "what limits the method is told in whole sentences": lambda: [
            work(running(), 76, height) for height in (14, 17, 20, 22)
        ],
        "a row tells what became of a prompt": lambda: prompts(table(2), 116, 8),
        "whether the text is that of ar is said in words": lambda: [
            prompts(table(2, changed={"identical_to_ar": same, "near_tie": near}), 116, 8)
            for same, near in ((None, None), (False, True), (False, False), (False, None))
        ],
        "in a narrow panel rate and tokens per round stay": lambda: prompts(table(2), 46, 8),
        "all prompts are listed whether they ran or not": lambda: prompts(
            replace(running(), openings=OPENINGS), 116, 9
        ),
        "before the first figures it says so": lambda: prompts(Scene(), 60, 5),
        "the prompt that is decoded now is in the table": lambda: [
            prompts(running(), 116, 8),
            prompts(replace(running(), results=table(2).results), 116, 8),
        ],
        "a prompt without figures says why": lambda: [
            prompts(second_of_four(), 90, 7),
            prompts(replace(second_of_four(), state=state_of([Prompt(2, 4), Failure("no memory", 3)])), 90, 7),
            prompts(replace(second_of_four(), replaying=True), 90, 7),
        ],
        "the cursor leaves the running prompt marked": lambda: prompts(
            replace(running(), openings=OPENINGS, chosen_prompt=3), 90, 9
        ),
        "the title names the filter": lambda: [
            prompts(replace(running(), openings=OPENINGS, prompt_filter=words), 90, 9) for words in ("THE", "sun")
        ],
        "the panel sums up and gives both tables": lambda: work(running(), 76, 11),
        "bars are as long as what was drafted and full as far as it was used": lambda: depths(LEVELS, 46, 9),
        "the deepest share a row where rows are short": lambda: depths(LEVELS, 46, 3),
        "the rows of a table have one width": lambda: depths(((123456, 7), (1, 1)), 40, 9),
        "shares of time add up": lambda: times_table(running().state, running().state.race.tallies["dynatree"], 36),
        "a panel with room says what limits the method": lambda: work(running(), 76, 24),
        "a method without guesses says so": lambda: [
            work(Scene(state_of([run(("ar",)), plain_round("ar", 0)])), 76, 11),
            work(Scene(state_of([run(("hf",)), HIDDEN])), 76, 11),
        ],
        "times that are not known are dashes and leave no rest": lambda: timed(
            structs.replace(tree_round(0), draft_s=None)
        ),
        "last and mean are different figures": lambda: timed(
            tree_round(0), structs.replace(tree_round(1), draft_s=0.008)
        ),
        "before the first round the panel says what will come": lambda: work(Scene(), 76, 5),
        "the panel says whether a text is that of plain decoding": lambda: [compared(99), compared(13)],
    }
)
