"""Tests of the log of turned knobs and other events."""

from functools import reduce

from msgspec import structs

from decoder.events import End, Event, Knob, Summary
from dynatui.render.log import entries, log
from dynatui.render.scene import Scene
from dynatui.state.ab_comparison import Pin
from dynatui.state.lane import IN_A_ROW
from dynatui.state.run_state import Failure, Loading, RunState, apply
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, run, state_of, tree_round


def moved(number: int, name: str, old: float, new: float, source: str = "history") -> Event:
    return structs.replace(
        Knob(method="dynatree", round=number, name="d0", old=old, new=new, source="user"), name=name, source=source
    )


def told(*moves: Event) -> list[str]:
    state = state_of([run(), *(tree_round(number) for number in range(3)), *moves])
    return [row[2:-2].rstrip() for row in lines(log(Scene(state), 120, 12))[1:-1] if row[2:-2].strip()]


def test_a_move_of_history_is_told_with_its_reason() -> None:
    assert told(moved(3, "d0", 5.4, 5.6)) == [
        "round 4        history   D0 5 → 6: depth acceptance 0.67 < 0.70 over 3 rounds"
    ]


def test_a_turn_of_the_user_is_told_with_what_came_of_it() -> None:
    rounds = [structs.replace(tree_round(number), committed=[11]) for number in (3, 4)]
    assert told(moved(3, "n_max", 256, 128, "user"), *rounds) == [
        "round 4        you       N_max 256 → 128: L-bar 3.00 in the 3 rounds before, 1.00 in the 2 rounds after"
    ]


def test_a_turn_that_no_round_obeyed_says_so() -> None:
    assert told(moved(3, "history", 1, 0, "user")) == [
        "round 4        you       history on → off: no round with this value yet"
    ]


def test_a_held_key_is_one_line_from_its_first_value_to_its_last() -> None:
    steps = [moved(3, "tau_h", 0.5 + 0.05 * step, 0.55 + 0.05 * step, "user") for step in range(6)]
    later = [tree_round(3), moved(4, "tau_h", 0.8, 0.85, "user"), tree_round(4)]
    (line,) = told(*steps, *later)
    assert line.startswith("rounds 4-5     you       τh 0.5 → 0.85 (7 presses): L-bar 3.00 in the 3 rounds before, ")


def test_lines_of_the_users_turns_are_the_marks_of_the_curves() -> None:
    far = [tree_round(number) for number in range(3, 3 + IN_A_ROW)]
    moves = [moved(3, "d0", 5, 6, "user"), *far, moved(3 + IN_A_ROW, "d0", 6, 7, "user")]
    state = state_of([run(), *(tree_round(number) for number in range(3)), *moves])
    assert [entry.rounds for entry in entries(state)] == [(mark.first, mark.round) for mark in state.lane.marks]
    assert len(entries(state)) == 2


def test_a_turn_that_history_has_moved_back_says_so_and_which_key_holds_it() -> None:
    page = told(moved(3, "d0", 5, 8, "user"), tree_round(3), moved(4, "d0", 8, 6.4))
    assert page[0] == "round 4        you       D0 5 → 8: history moved it back to 6.4; H holds 8"


def pinned(state: RunState, *, by_hand: bool = False) -> Pin:
    return Pin.of(state, "dynatree", by_hand=by_hand)


def grown(state: RunState, *records: Event) -> RunState:
    return reduce(apply, records, state)


def rounds(first: int, count: int) -> list[Event]:
    return [tree_round(number) for number in range(first, first + count)]


def test_the_turns_with_which_a_and_b_began_say_so() -> None:
    before = state_of([run(), *rounds(0, 3), moved(3, "n_max", 256, 128, "user"), *rounds(3, 12)])
    after = grown(before, moved(15, "n_max", 128, 64, "user"), *rounds(15, 2))
    first, last = entries(after, pinned(before))
    assert first.why[-1] == "A begins here"
    assert last.why[-1] == "B begins here"


def test_a_pin_of_the_users_own_is_a_line_after_which_b_begins() -> None:
    state = state_of([run(), *rounds(0, 3), moved(3, "n_max", 256, 128, "user"), *rounds(3, 12)])
    turn, pin = entries(state, pinned(state, by_hand=True))
    assert turn.why[-1] == "A begins here"
    assert (pin.rounds, pin.what, pin.why) == ((15, 15), "A is pinned", ("what follows is B",))


def test_no_number_of_later_turns_drops_the_line_of_a() -> None:
    before = state_of([run(), *rounds(0, 3), moved(3, "n_max", 256, 128, "user"), *rounds(3, 12)])
    names = ("d0", "tau_l")
    later = (moved(15 + n, names[n % 2], 0.1 * n, 0.1 * n + 0.1, "user") for n in range(500))
    after = grown(before, *later)
    lines_of_a = [entry for entry in entries(after, pinned(before, by_hand=True)) if "A begins here" in entry.why]
    assert [entry.what for entry in lines_of_a] == ["N_max 256 → 128"]
    assert len(entries(after)) < 500


def test_no_number_of_historys_moves_drops_the_line_of_b() -> None:
    before = state_of([run(), *rounds(0, 12)])
    moves = (moved(13 + n, "tau_h", 0.9 - 0.001 * n, 0.899 - 0.001 * n) for n in range(500))
    after = grown(before, moved(12, "n_max", 256, 128, "user"), *moves)
    assert [entry.what for entry in entries(after, pinned(before)) if "B begins here" in entry.why] == [
        "N_max 256 → 128"
    ]


def test_small_steps_in_one_direction_are_told_as_one() -> None:
    page = told(moved(3, "tau_h", 0.9, 0.91), moved(4, "tau_h", 0.91, 0.93), moved(5, "tau_h", 0.93, 0.92))
    assert [line[:40].rstrip() for line in page] == [
        "rounds 4-5     history   τh 0.9 → 0.93:",
        "round 6        history   τh 0.93 → 0.92:",
    ]


def test_a_narrow_panel_gives_the_reason_in_fewer_words_or_not_at_all() -> None:
    state = state_of([run(), *(tree_round(number) for number in range(3)), moved(3, "d0", 5.4, 5.6)])
    assert "D0 5 → 6: depth acc. 0.67 < 0.70, 3 rounds" in lines(log(Scene(state), 72, 5))[1]
    assert lines(log(Scene(state), 36, 5))[1].strip("│ ") == "4       history   D0 5 → 6"


def test_loading_comes_first_and_ends_last() -> None:
    broken = End(method="ar", reason="error", error="out of memory")
    state = state_of([Loading("reading weights"), run(), tree_round(0), moved(1, "d0", 5, 6, "user"), broken])
    assert [(entry.who, entry.what) for entry in entries(state)] == [
        ("loading", "reading weights"),
        ("you", "D0 5 → 6"),
        ("ar", "broke off"),
    ]
    assert "broke off: out of memory" in lines(log(Scene(state), 80, 6))[3]


def test_the_first_difference_from_ar_is_told_at_its_round() -> None:
    ar = [
        structs.replace(plain_round("ar", number), committed=[token]) for number, token in enumerate([11, 13, 100, 99])
    ]
    state = state_of([run(), tree_round(0), tree_round(1), *ar, moved(5, "d0", 5, 6, "user")])
    found = entries(state)
    assert [(entry.rounds, entry.what) for entry in found] == [
        ((1, 1), "first difference from ar at token 3"),
        ((5, 5), "D0 5 → 6"),
    ]
    near = {name: structs.replace(entry, near_tie=True) for name, entry in state.figures().items()}
    assert "a near tie" in entries(state_of([run(), tree_round(0), tree_round(1), *ar, Summary(methods=near)]))[0].why


def test_an_empty_log_says_what_will_be_told() -> None:
    assert "every turn of a knob is listed here" in lines(log(Scene(), 90, 5))[1]


def test_the_newest_lines_are_shown_where_there_is_no_room_for_all() -> None:
    names = ("d0", "n_max")
    page = told(*(moved(number, names[number % 2], number, number + 1, "user") for number in range(3, 30)))
    assert len(page) == 10
    assert page[-1].endswith("N_max 29 → 30: no round with this value yet")


def test_a_failure_stays_on_one_line() -> None:
    state: RunState = state_of([run(), Failure(f"broken\n{HOSTILE}", 3)])
    assert len(lines(log(Scene(state), 60, 5))) == 5
    assert "broken" in lines(log(Scene(state), 60, 5))[1]


def test_turns_of_earlier_prompts_stay_with_what_came_of_them() -> None:
    first = [run(), *(tree_round(number) for number in range(3)), moved(3, "n_max", 256, 128, "user")]
    short = [structs.replace(tree_round(number), committed=[11]) for number in (3, 4)]
    second: Event = structs.replace(run(), prompt=f"A second {HOSTILE}", started_at="later")
    third: Event = structs.replace(run(), prompt="A third", started_at="last")
    state = state_of([*first, *short, second, tree_round(0), moved(1, "d0", 5, 6, "user"), tree_round(1), third])
    told = [row[2:-2].rstrip() for row in lines(log(Scene(state), 120, 12))[1:-1] if row[2:-2].strip()]
    assert [line.split()[:2] for line in told if line.startswith("   ")] == [["run", "1"], ["run", "2"], ["run", "3"]]
    assert (
        "round 4        you       N_max 256 → 128: L-bar 3.00 in the 3 rounds before, 1.00 in the 2 rounds after"
        in told
    )
    assert [line for line in told if "D0 5 → 6" in line]
    assert not any("\x1b" in line for line in told)


def test_a_session_without_turns_has_no_lines_of_earlier_prompts() -> None:
    later: Event = structs.replace(run(), started_at="later")
    assert entries(state_of([run(), tree_round(0), later])) == []


def test_the_turns_of_the_newest_runs_are_kept() -> None:
    events: list[Event] = []
    for number in range(30):
        events += [structs.replace(run(), started_at=str(number)), moved(0, "d0", 5, 6, "user"), tree_round(0)]
    earlier = state_of(events).earlier
    assert [one.number for one in earlier] == list(range(10, 30))


test_golden = golden(
    {
        "special tokens that were not added to the prompt are told": lambda: entries(
            state_of([structs.replace(run(), repeated_start=f"<s>{HOSTILE}")])
        ),
    }
)
