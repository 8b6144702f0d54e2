"""The text panel: wrapping, origin, paging, loading and failure."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel, Wrapped
from dynatui.state import Failure, Loading, RunState
from tests.dynatui.render.scripted import lines, run, running, state_of, tree_round


def test_words_stay_whole() -> None:
    page = Wrapped(10)
    page.add("the keeper had gone", "plain")
    assert lines(page.rows) == ["the keeper", "had gone"]


def test_a_word_that_grows_over_the_edge_moves_down() -> None:
    page = Wrapped(10)
    for piece in ("the", " light", "house", " was"):
        page.add(piece, "plain")
    assert lines(page.rows) == ["the ", "lighthouse", "was"]


def test_a_word_longer_than_a_line_is_broken() -> None:
    page = Wrapped(4)
    page.add("abcdefghij", "plain")
    assert lines(page.rows) == ["abcd", "efgh", "ij"]


def test_line_ends_and_empty_lines_are_kept() -> None:
    page = Wrapped(20)
    page.add("a\n\nb", "plain")
    assert lines(page.rows) == ["a", "", "b"]


@given(st.lists(st.text(alphabet="ab \n世é", max_size=6), max_size=12), st.integers(2, 12))
def test_wrapping_piece_by_piece_equals_wrapping_at_once(pieces: list[str], width: int) -> None:
    slow, fast = Wrapped(width), Wrapped(width)
    fast.add("".join(pieces), "plain")
    for piece in pieces:
        slow.add(piece, "plain")
    assert lines(slow.rows) == lines(fast.rows)
    assert "".join(lines(fast.rows)).replace(" ", "") == "".join(pieces).replace(" ", "").replace("\n", "")


def test_each_origin_has_its_own_ink() -> None:
    row = TextPanel()(running(), 60, 6)[1]
    assert [span for span in row if span[1] in ("prompt", "accepted", "bonus")][:5] == [
        ("Once", "prompt"),
        ("upon", "prompt"),
        ("at", "accepted"),
        ("a", "bonus"),
        ("time", "bonus"),
    ]


def test_the_newest_text_is_always_in_view() -> None:
    panel, records = TextPanel(), [run()]
    for number in range(40):
        state = state_of([*records, *(tree_round(n, f" word{n}") for n in range(number))])
        page = lines(panel(Scene(state), 30, 7))
        assert any(f"word{number - 1}" in line for line in page) or number == 0


def test_a_full_page_moves_up_by_more_than_a_line() -> None:
    panel = TextPanel()
    tops = []
    for number in range(30):
        state = state_of([run(), *(tree_round(n) for n in range(number))])
        tops.append(lines(panel(Scene(state), 40, 10))[1])
    assert 1 < len(set(tops)) < 8


def test_the_same_text_at_another_width_is_wrapped_anew() -> None:
    panel, scene = TextPanel(), running()
    panel(scene, 60, 8)
    assert lines(panel(scene, 30, 8)) == lines(TextPanel()(scene, 30, 8))


def test_before_the_first_run_the_panel_says_what_is_loading() -> None:
    scene = Scene(state_of([Loading("importing torch"), Loading("loading target x")]))
    page = " ".join(lines(TextPanel()(scene, 70, 12)))
    assert "done     importing torch" in page
    assert "loading  loading target x …" in page


def test_a_failure_says_what_to_do() -> None:
    scene = Scene(replace(RunState(), failure=Failure("no model at /nowhere; give a folder", 3)))
    page = " ".join(lines(TextPanel()(scene, 70, 12)))
    assert "Error" in page
    assert "no model at /nowhere; give a folder" in page
    assert "R tries again" in page
    assert "q quits" in page
