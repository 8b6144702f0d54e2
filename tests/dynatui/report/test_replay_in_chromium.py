"""Tests of replay pages in a real browser: keys, playing, methods, hostile recordings, no scripts, no network."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from msgspec import structs

from decoder.events import Event, Round
from dynatui.report.replay_data import KEYS
from tests.dynatui import hostile_text
from tests.dynatui.report.chromium import Browser, Tab
from tests.dynatui.report.hostile_markup import ELEMENTS, hostile
from tests.dynatui.scripted_runs import plain_round, run, story, tree_round

Made = Callable[[Iterable[Event]], str]
ROUNDS = 52
DATA = "JSON.parse(document.querySelector('#data').textContent)"
ROUND = "Number(document.querySelector('#round').value)"
PLAYING = "(document.querySelector('#play').innerText === 'Pause')"


@pytest.fixture
def tab(browser: Browser, demo: str) -> Iterator[Tab]:
    found = browser.open(demo)
    yield found
    assert found.faults() == []
    found.close()


def place(tab: Tab) -> str:
    return tab.text("#place")


def pressed(tab: Tab) -> list[str]:
    marked = "[...document.querySelectorAll('#methods button[aria-pressed=true]')].map((each) => each.innerText)"
    return [" ".join(name.split()) for name in tab.value(marked)]


def shown(tab: Tab) -> str:
    return str(tab.value("document.querySelector('#text').innerText"))


def test_a_page_opens_at_the_end_of_the_text(tab: Tab) -> None:
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"
    assert "thinking of his supper" in shown(tab)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["Home"], 1),
        (["Home", "ArrowRight", "ArrowRight"], 3),
        (["Home", "ArrowLeft"], 1),
        (["ArrowRight"], ROUNDS),
        (["ArrowLeft"], ROUNDS - 1),
        (["PageUp"], ROUNDS - 10),
        (["Home", "PageDown"], 11),
        (["Home", "End"], ROUNDS),
    ],
)
def test_keys_go_through_the_rounds(tab: Tab, keys: list[str], expected: int) -> None:
    for key in keys:
        tab.press(key)
    assert place(tab) == f"round {expected} of {ROUNDS}"
    assert tab.value("Number(document.querySelector('#round').value)") == expected


def test_shift_with_an_arrow_goes_by_ten(tab: Tab) -> None:
    tab.press("ArrowLeft", shift=True)
    assert place(tab) == f"round {ROUNDS - 10} of {ROUNDS}"
    tab.press("ArrowRight", shift=True)
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"


def test_arrows_go_one_round_also_while_the_scrubber_has_the_focus(tab: Tab) -> None:
    tab.value("document.querySelector('#round').focus()")
    tab.press("ArrowLeft")
    assert place(tab) == f"round {ROUNDS - 1} of {ROUNDS}"


def test_arrows_move_a_table_that_is_wider_than_its_place_while_it_has_the_focus(browser: Browser, demo: str) -> None:
    tab = browser.open(demo, width=390)
    tab.value("document.querySelector('.run .scrolls').focus()")
    tab.press("ArrowLeft")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"
    tab.value("document.querySelector('#text').focus()")
    tab.press("ArrowLeft")
    assert place(tab) == f"round {ROUNDS - 1} of {ROUNDS}"
    tab.close()


def test_the_text_is_that_of_the_round_whichever_way_it_is_reached(tab: Tab) -> None:
    whole = shown(tab)
    tab.press("Home")
    for _ in range(9):
        tab.press("ArrowRight")
    stepped = shown(tab)
    tab.press("End")
    assert shown(tab) == whole
    tab.press("Home")
    tab.press("PageDown")
    tab.press("ArrowLeft")
    assert shown(tab) == stepped
    assert len(stepped) < len(whole)


def test_the_tokens_of_the_round_are_framed(tab: Tab) -> None:
    tab.press("Home")
    framed = "[...document.querySelectorAll('#text .now-of')].map((each) => each.textContent).join('')"
    assert tab.value(framed)
    assert shown(tab).endswith(tab.value(framed))


def test_a_click_on_a_token_goes_to_its_round(tab: Tab) -> None:
    tab.value("document.querySelector('#text .token').click()")
    assert place(tab) == f"round 1 of {ROUNDS}"


def test_the_tree_has_a_mark_for_every_node_and_the_bonus(tab: Tab) -> None:
    tab.press("Home")
    marks = {kind: tab.value(f"document.querySelectorAll('#tree svg > .{kind}:not(.edge):not(.piece)').length")
             for kind in ("root", "accepted", "rejected", "bonus")}  # fmt: skip
    drafted, accepted = (
        tab.value(f"{DATA}.runs[0].lanes[0].trees[0].{what}.length") for what in ("parents.slice(1)", "accepted")
    )
    assert marks == {"root": 1, "accepted": accepted, "rejected": drafted - accepted, "bonus": 1}


def test_what_was_looked_up_is_drawn_as_triangles_and_explained(browser: Browser, page_of_events: Made) -> None:
    mixed = structs.replace(tree_round(0), origins=["root", "draft", "lookup", "lookup", "draft", "draft"])
    found = browser.open(page_of_events([run(), mixed]))
    assert found.value("document.querySelectorAll('#tree polygon.accepted').length") == 1
    assert found.value("document.querySelectorAll('#tree polygon').length") == 2
    assert found.value("document.querySelectorAll('#tree circle').length") == 3
    assert "Triangles were looked up in the text." in found.value("document.body.innerText")
    assert found.faults() == []
    found.close()


def test_what_a_round_was_is_told_to_those_who_do_not_see_it(tab: Tab) -> None:
    tab.press("Home")
    assert tab.text("#now").startswith("dynatree, round 1: ")
    assert tab.value("document.querySelector('#now').getAttribute('role')") == "status"
    assert tab.value("document.querySelector('#round').getAttribute('aria-valuetext')") == f"round 1 of {ROUNDS}"
    assert "Accepted: “" in tab.value("document.querySelector('#tree svg').getAttribute('aria-label')")


@pytest.mark.parametrize(("digit", "method"), [("1", "dynatree"), ("3", "ar"), ("5", "fixed")])
def test_a_digit_chooses_the_method(tab: Tab, digit: str, method: str) -> None:
    tab.press(digit)
    assert pressed(tab) == [f"{digit} {method}"]
    assert tab.text("#now").startswith(f"{method}, ")


def test_a_digit_without_a_method_does_nothing(tab: Tab) -> None:
    tab.press("9")
    assert pressed(tab) == ["1 dynatree"]


def test_w_goes_round_the_methods(tab: Tab) -> None:
    for _ in range(6):
        tab.press("w")
    assert pressed(tab) == ["2 auto"]


def test_another_method_is_shown_at_the_same_time_of_its_own_decoding(tab: Tab) -> None:
    tab.press("Home")
    tab.press("PageDown")
    tab.press("3")
    first, third = (tab.value(f"{DATA}.runs[0].lanes[{number}].t") for number in (0, 2))
    number = tab.value(ROUND) - 1
    assert third[number] <= first[10] < third[number + 1]


def test_tab_reaches_a_method_and_enter_chooses_it(tab: Tab) -> None:
    tab.press("Tab")
    tab.press("Tab")
    tab.press("Enter")
    assert pressed(tab) == ["2 auto"]


def test_a_method_without_knobs_has_no_panel_of_them(tab: Tab) -> None:
    visible = "!document.querySelector('#tau').closest('section').hidden"
    assert tab.value(visible)
    tab.press("3")
    assert not tab.value(visible)
    assert "Nothing was drafted" in tab.text("#tree-note")


def test_space_plays_from_the_beginning_and_pauses(tab: Tab) -> None:
    for _ in range(4):
        tab.press("<")
    tab.press(" ")
    assert tab.text("#play") == "Pause"
    assert tab.value("document.querySelector('#now').getAttribute('aria-live')") == "off"
    tab.until(f"{ROUND} > 3")
    tab.press(" ")
    assert tab.text("#play") == "Play"
    stopped = place(tab)
    assert tab.value("new Promise((done) => setTimeout(done, 100))") is None
    assert place(tab) == stopped


def test_playing_ends_with_the_last_round(tab: Tab) -> None:
    tab.press(" ")
    tab.until(f"!{PLAYING}")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"


@pytest.mark.wall_time
def test_a_tenth_of_the_recorded_speed_takes_ten_times_as_long(tab: Tab) -> None:
    for _ in range(3):
        tab.press("<")
    times = tab.value(f"{DATA}.runs[0].lanes[0].t")
    tab.value("window.began = performance.now()")
    tab.press(" ")
    tab.until(f"!{PLAYING}")
    seconds = tab.value("(performance.now() - began) / 1000")
    assert 0.9 * 10 * (times[-1] - times[0]) < seconds < 1.5 * 10 * times[-1]


def test_a_step_pauses(tab: Tab) -> None:
    tab.press("<")
    tab.press(" ")
    tab.press("ArrowLeft")
    assert tab.text("#play") == "Play"


def test_slower_and_faster_stop_at_the_ends_of_the_list(tab: Tab) -> None:
    for _ in range(20):
        tab.press(">")
    assert tab.value("document.querySelector('#speed').selectedOptions[0].text").endswith(" 10")
    for _ in range(20):
        tab.press("<")
    assert tab.value("document.querySelector('#speed').selectedOptions[0].text").endswith(" 0.01")


def test_n_goes_to_the_next_prompt_and_its_figures(tab: Tab) -> None:
    first = shown(tab)
    tab.press("n")
    assert tab.value("document.querySelector('#run').selectedIndex") == 1
    assert shown(tab) != first
    visible = "[...document.querySelectorAll('.run')].map((each) => getComputedStyle(each).display)"
    assert tab.value(visible) == ["none", "block"]
    tab.press("N", shift=True)
    assert shown(tab) == first


def test_a_question_mark_shows_every_key_and_another_hides_them(tab: Tab) -> None:
    tab.press("?", shift=True)
    assert tab.value("document.querySelector('#keys').open")
    listed = tab.text("#key-list")
    assert all(key.caps in listed and key.help in listed for key in KEYS)
    tab.press("ArrowLeft")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"
    tab.press("?", shift=True)
    assert not tab.value("document.querySelector('#keys').open")


def test_keys_of_the_browser_stay_the_browsers(tab: Tab) -> None:
    pressed = "new KeyboardEvent('keydown', {key: 'ArrowLeft', ctrlKey: true, cancelable: true, bubbles: true})"
    assert tab.value(f"document.body.dispatchEvent({pressed})")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"


def test_who_wants_less_motion_gets_a_picture_a_second(browser: Browser, demo: str) -> None:
    tab = browser.open(demo, prefers_reduced_motion="reduce")
    tab.press(" ")
    assert tab.value(f"new Promise((done) => setTimeout(() => done({ROUND}), 300))") == 1
    tab.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_as_wide_as_its_window(browser: Browser, demo: str, width: int) -> None:
    tab = browser.open(demo, width=width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    tab.close()


def test_a_page_asks_nothing_of_anybody(browser: Browser, demo: str) -> None:
    tab = browser.open(demo)
    tab.press(" ")
    tab.until(f"!{PLAYING}")
    assert tab.requests() == [demo]
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme(browser: Browser, demo: str, scheme: str) -> None:
    tab = browser.open(demo, prefers_color_scheme=scheme)
    found = tab.value("getComputedStyle(document.body).backgroundColor")
    assert found == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 25)"}[scheme]
    tab.close()


def test_without_scripts_there_are_prompt_text_and_figures(browser: Browser, demo: str) -> None:
    tab = browser.open(demo, scripts=False)
    snapshot = tab.ask("DOMSnapshot.captureSnapshot", computedStyles=[])
    texts = " ".join(snapshot["strings"])
    for expected in (
        "Scripts are off",
        "thinking of his supper",
        "tokens_per_second / tokens_per_second of ar",
        "dynatree",
    ):
        assert expected in texts
    tab.close()


def hostile_events() -> list[Event]:
    return [hostile(event) for event in story()]


@pytest.mark.parametrize("scripts", [True, False])
def test_nothing_of_a_hostile_recording_runs_or_becomes_an_element(
    browser: Browser, page_of_events: Made, *, scripts: bool
) -> None:
    tab = browser.open(page_of_events(hostile_events()), scripts=scripts)
    for key in ("Home", "ArrowRight", "2", "PageUp", " ", "?"):
        tab.press(key)
    tab.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert tab.value("window.pwned") is None
    assert tab.value(f"document.querySelectorAll({', '.join(ELEMENTS)!r}).length") == 0
    assert tab.value("document.scripts.length") == 2
    assert tab.value("document.querySelectorAll('style').length") == 1
    if scripts:
        assert "<img src=x onerror=window.pwned=1>" in shown(tab)
        assert tab.faults() == []
    tab.close()


def test_characters_that_steer_are_visible_in_the_page(browser: Browser, page_of_events: Made) -> None:
    events = [hostile_text.hostile_event(event) for event in story()]
    tab = browser.open(page_of_events(events))
    text = str(tab.value("document.documentElement.textContent + document.title"))
    assert not set(text) & set("\x1b\x9b\u202e\u2066\u2028\ufeff\x7f")
    assert "\u241b" in text
    assert tab.faults() == []
    tab.close()


def test_the_page_itself_can_make_no_markup_of_text(browser: Browser, demo: str) -> None:
    tab = browser.open(demo)
    done = tab.ask("Runtime.evaluate", expression="document.body.innerHTML = '<b>x</b>'")
    assert "TrustedHTML" in done["exceptionDetails"]["exception"]["description"]
    tab.close()


def bursts() -> list[Event]:
    whole = structs.replace(plain_round("hf", 0), draft_forwards=None, target_forwards=None, t=0.0)
    return [run(["hf"]), whole]


def cut() -> list[Event]:
    last = tree_round(1)
    return [run(), tree_round(0), structs.replace(last, committed=last.committed[:1], text=" a")]


def lonely() -> list[Event]:
    count = 3000
    chain = structs.replace(
        tree_round(0),
        tokens=list(range(count)),
        parents=list(range(-1, count - 1)),
        logprobs=[-1.0] * count,
        pieces=["x"] * count,
        accepted=[1],
        committed=[1, 9],
    )
    star = structs.replace(chain, round=1, position=2, parents=[-1, *[0] * (count - 1)], t=0.3)
    return [run(), chain, star]


@pytest.mark.parametrize(
    "events", [[run()], bursts(), cut(), lonely(), story()[:7]], ids=["none", "hf", "cut", "wide", "begun"]
)
def test_what_is_odd_but_possible_is_shown_without_a_fault(
    browser: Browser, page_of_events: Made, events: list[Event]
) -> None:
    tab = browser.open(page_of_events(events))
    for key in ("Home", "ArrowRight", "End", "PageUp", "2", "w", " ", " ", "n"):
        tab.press(key)
    assert tab.faults() == []
    assert tab.text("#now")
    tab.close()


def test_a_tree_of_very_many_nodes_says_how_many_are_left_out(browser: Browser, page_of_events: Made) -> None:
    tab = browser.open(page_of_events(lonely()))
    assert "2744 more rejected, not drawn" in tab.text("#tree-note")
    tab.close()


def test_a_text_of_many_rounds_is_stepped_through_quickly(browser: Browser, page_of_events: Made) -> None:
    rounds: list[Round] = [tree_round(number) for number in range(2000)]
    tab = browser.open(page_of_events([run(), *rounds]))
    tab.press("Home")
    tab.press("End")
    assert place(tab) == "round 2000 of 2000"
    tab.close()
