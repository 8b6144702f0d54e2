"""Tests of replay pages in a real browser: keys, playing, methods, hostile recordings, no scripts, no network."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from msgspec import structs

from decoder.events import Event, Round
from dynatui.report.replay import KEYS
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


def press(tab: Tab, keys: str) -> None:
    """Presses keys by their names; `^` stands for shift."""
    for key in keys.split():
        tab.press(" " if key == "Space" else key.removeprefix("^"), shift=key.startswith("^"))


def place(tab: Tab) -> str:
    return tab.text("#place")


def shown(tab: Tab) -> str:
    return str(tab.value("document.querySelector('#text').innerText"))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", ROUNDS),
        ("Home", 1),
        ("Home ArrowRight ArrowRight", 3),
        ("Home ArrowLeft", 1),
        ("ArrowRight", ROUNDS),
        ("ArrowLeft", ROUNDS - 1),
        ("PageUp", ROUNDS - 10),
        ("Home PageDown", 11),
        ("Home End", ROUNDS),
        ("^ArrowLeft", ROUNDS - 10),
        ("^ArrowLeft ^ArrowRight", ROUNDS),
    ],
)
def test_keys_go_through_the_rounds(tab: Tab, keys: str, expected: int) -> None:
    press(tab, keys)
    assert place(tab) == f"round {expected} of {ROUNDS}"
    assert tab.value(ROUND) == expected


def test_arrows_go_one_round_also_while_the_scrubber_has_the_focus_but_move_a_wide_table(
    browser: Browser, demo: str, tab: Tab
) -> None:
    tab.value("document.querySelector('#round').focus()")
    tab.press("ArrowLeft")
    assert place(tab) == f"round {ROUNDS - 1} of {ROUNDS}"
    narrow = browser.open(demo, width=390)
    for focused, expected in ((".run .scrolls", ROUNDS), ("#text", ROUNDS - 1)):
        narrow.value(f"document.querySelector('{focused}').focus()")
        narrow.press("ArrowLeft")
        assert place(narrow) == f"round {expected} of {ROUNDS}"
    narrow.close()


def test_the_text_is_that_of_the_round_whichever_way_it_is_reached_and_its_tokens_are_framed(tab: Tab) -> None:
    whole = shown(tab)
    assert "thinking of his supper" in whole
    press(tab, "Home" + " ArrowRight" * 9)
    stepped = shown(tab)
    press(tab, "End")
    assert shown(tab) == whole
    press(tab, "Home PageDown ArrowLeft")
    assert shown(tab) == stepped
    assert len(stepped) < len(whole)
    framed = "[...document.querySelectorAll('#text .now-of')].map((each) => each.textContent).join('')"
    assert tab.value(framed)
    assert stepped.endswith(tab.value(framed))
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


@pytest.mark.parametrize(
    ("keys", "method"),
    [
        ("1", "1 dynatree"),
        ("3", "3 ar"),
        ("5", "5 fixed"),
        ("9", "1 dynatree"),
        ("w w w w w w", "2 auto"),
        ("Tab Tab Enter", "2 auto"),
    ],
)
def test_a_key_chooses_the_method(tab: Tab, keys: str, method: str) -> None:
    press(tab, keys)
    marked = "[...document.querySelectorAll('#methods button[aria-pressed=true]')].map((each) => each.innerText)"
    assert [" ".join(name.split()) for name in tab.value(marked)] == [method]
    assert tab.text("#now").startswith(f"{method[2:]}, ")


def test_another_method_is_shown_at_the_same_time_of_its_own_decoding_without_panels_that_it_has_not(tab: Tab) -> None:
    visible = "!document.querySelector('#tau').closest('section').hidden"
    assert tab.value(visible)
    press(tab, "Home PageDown 3")
    first, third = (tab.value(f"{DATA}.runs[0].lanes[{number}].t") for number in (0, 2))
    number = tab.value(ROUND) - 1
    assert third[number] <= first[10] < third[number + 1]
    assert not tab.value(visible)
    assert "Nothing was drafted" in tab.text("#tree-note")


def test_space_plays_from_the_beginning_and_pauses_as_a_step_does(tab: Tab) -> None:
    press(tab, "< < < < Space")
    assert tab.text("#play") == "Pause"
    assert tab.value("document.querySelector('#now').getAttribute('aria-live')") == "off"
    tab.until(f"{ROUND} > 3")
    press(tab, "Space")
    assert tab.text("#play") == "Play"
    stopped = place(tab)
    assert tab.value("new Promise((done) => setTimeout(done, 100))") is None
    assert place(tab) == stopped
    press(tab, "Space ArrowLeft")
    assert tab.text("#play") == "Play"


def test_playing_ends_with_the_last_round(tab: Tab) -> None:
    press(tab, "Space")
    tab.until(f"!{PLAYING}")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"


@pytest.mark.parametrize(("key", "end"), [(">", " 10"), ("<", " 0.01")])
def test_slower_and_faster_stop_at_the_ends_of_the_list(tab: Tab, key: str, end: str) -> None:
    press(tab, f"{key} " * 20)
    assert tab.value("document.querySelector('#speed').selectedOptions[0].text").endswith(end)


@pytest.mark.wall_time
def test_a_tenth_of_the_recorded_speed_takes_ten_times_as_long(tab: Tab) -> None:
    press(tab, "< < <")
    times = tab.value(f"{DATA}.runs[0].lanes[0].t")
    tab.value("window.began = performance.now()")
    tab.press(" ")
    tab.until(f"!{PLAYING}")
    seconds = tab.value("(performance.now() - began) / 1000")
    assert 0.9 * 10 * (times[-1] - times[0]) < seconds < 1.5 * 10 * times[-1]


def test_n_goes_to_the_next_prompt_and_its_figures(tab: Tab) -> None:
    first = shown(tab)
    press(tab, "n")
    assert tab.value("document.querySelector('#run').selectedIndex") == 1
    assert shown(tab) != first
    visible = "[...document.querySelectorAll('.run')].map((each) => getComputedStyle(each).display)"
    assert tab.value(visible) == ["none", "block"]
    press(tab, "^N")
    assert shown(tab) == first


def test_a_question_mark_shows_every_key_and_another_hides_them_and_keys_of_the_browser_stay_its_own(tab: Tab) -> None:
    press(tab, "^?")
    assert tab.value("document.querySelector('#keys').open")
    listed = tab.text("#key-list")
    assert all(key.caps in listed and key.help in listed for key in KEYS)
    press(tab, "ArrowLeft")
    assert place(tab) == f"round {ROUNDS} of {ROUNDS}"
    press(tab, "^?")
    assert not tab.value("document.querySelector('#keys').open")
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


def test_a_page_asks_nothing_of_anybody_and_can_make_no_markup_of_text(browser: Browser, demo: str) -> None:
    tab = browser.open(demo)
    press(tab, "Space")
    tab.until(f"!{PLAYING}")
    assert tab.requests() == [demo]
    done = tab.ask("Runtime.evaluate", expression="document.body.innerHTML = '<b>x</b>'")
    assert "TrustedHTML" in done["exceptionDetails"]["exception"]["description"]
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
    press(tab, "Home ArrowRight 2 PageUp Space ?")
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
    press(tab, "Home ArrowRight End PageUp 2 w Space Space n")
    assert tab.faults() == []
    assert tab.text("#now")
    tab.close()


def test_of_very_many_nodes_some_are_left_out_and_many_rounds_are_stepped_through(
    browser: Browser, page_of_events: Made
) -> None:
    tab = browser.open(page_of_events(lonely()))
    assert "2744 more rejected, not drawn" in tab.text("#tree-note")
    tab.close()
    rounds: list[Round] = [tree_round(number) for number in range(2000)]
    tab = browser.open(page_of_events([run(), *rounds]))
    press(tab, "Home End")
    assert place(tab) == "round 2000 of 2000"
    tab.close()
