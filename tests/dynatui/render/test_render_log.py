"""The log of turns and of what else happened."""

from msgspec import structs

from decoder.events import End, Event, Knob, Summary
from dynatui.render.log import entries, log
from dynatui.render.scene import Scene
from dynatui.state.run_state import Failure, Loading, RunState
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, run, state_of, tree_round


def moved(number: int, name: str, old: float, new: float, source: str = "history") -> Event:
    """A knob moves before a round."""
    return structs.replace(
        Knob(method="dynatree", round=number, name="d0", old=old, new=new, source="user"), name=name, source=source
    )


def told(*moves: Event) -> list[str]:
    """The log's lines after three rounds and some moves, in a wide panel."""
    state = state_of([run(), *(tree_round(number) for number in range(3)), *moves])
    return [row[2:-2].rstrip() for row in lines(log(Scene(state), 120, 12))[1:-1] if row[2:-2].strip()]


def test_a_move_of_history_is_told_with_its_reason() -> None:
    assert told(moved(3, "d0", 5.4, 5.6)) == [
        "round 4        history   D0 5 → 6: depth acceptance .67 < .70 over 3 rounds"
    ]


def test_a_turn_of_the_user_needs_no_reason() -> None:
    assert told(moved(3, "n_max", 256, 128, "user")) == ["round 4        you       N_max 256 → 128"]
    assert told(moved(3, "history", 1, 0, "user")) == ["round 4        you       history on → off"]


def test_small_steps_in_one_direction_are_told_as_one() -> None:
    page = told(moved(3, "tau_h", 0.9, 0.91), moved(4, "tau_h", 0.91, 0.93), moved(5, "tau_h", 0.93, 0.92))
    assert [line[:40].rstrip() for line in page] == [
        "rounds 4-5     history   τh .9 → .93: de",
        "round 6        history   τh .93 → .92: d",
    ]


def test_a_narrow_panel_gives_the_reason_in_fewer_words_or_not_at_all() -> None:
    state = state_of([run(), *(tree_round(number) for number in range(3)), moved(3, "d0", 5.4, 5.6)])
    assert "D0 5 → 6: depth acc. .67 < .70, 3 rounds" in lines(log(Scene(state), 70, 5))[1]
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
    assert "every turn of a knob is told here" in lines(log(Scene(), 90, 5))[1]


def test_the_newest_lines_are_shown_where_there_is_no_room_for_all() -> None:
    page = told(*(moved(number, "d0", number, number + 1, "user") for number in range(3, 30)))
    assert len(page) == 10
    assert page[-1].endswith("D0 29 → 30")


def test_a_failure_stays_on_one_line() -> None:
    state: RunState = state_of([run(), Failure(f"broken\n{HOSTILE}", 3)])
    assert len(lines(log(Scene(state), 60, 5))) == 5
    assert "broken" in lines(log(Scene(state), 60, 5))[1]
