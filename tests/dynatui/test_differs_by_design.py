"""Where texts are compared, one that differs from ar's by design is reported as such and not as an error."""

import io

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import Event, Round, Summary
from dynatui.record.transcript import Transcript
from dynatui.render.headline import compared
from dynatui.render.ink import Ink, Rows
from dynatui.render.inspect import inspect
from dynatui.render.log import log
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.words import BY_DESIGN, WHY_BY_DESIGN
from dynatui.report.replay import figures_table
from dynatui.screen.run import lines as exit_lines
from dynatui.sources.source import Conditions, met
from dynatui.state.run_state import Prompt, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import lines, plain_round, run, state_of


def other_token(method: str, number: int) -> Round:
    return structs.replace(plain_round(method, number), committed=[99])


def played(method: str, **parameters: int) -> list[Event]:
    same, other = [plain_round(method, 0), plain_round("ar", 0)], [other_token(method, 1), plain_round("ar", 1)]
    begun = structs.replace(run((method, "ar")), methods={method: parameters, "ar": {}})
    return [begun, *same, *other]


OTHER = played("streaming", sinks=0, window=2)
TOO_EARLY = played("streaming", sinks=0, window=3)
UNKNOWN = played("streaming")


def inks(rows: Rows) -> set[Ink]:
    return {ink for row in rows for _, ink in row}


def test_the_badge_says_so_from_the_first_other_token_on() -> None:
    assert compared(state_of(OTHER[:3])) == ((("same text", "good"),),)
    assert compared(state_of(OTHER)) == ((("differs by design from token 1", "dim"),), (("differs by design", "dim"),))
    assert compared(state_of(played("linear")))[0][0][1] == "warn"


def test_a_difference_before_any_token_was_lost_is_one_like_any_other() -> None:
    assert compared(state_of(TOO_EARLY)) == compared(state_of(played("linear")))
    assert state_of(TOO_EARLY).figures()["streaming"].identical_to_ar is False


def test_nothing_is_said_of_a_text_where_the_recording_does_not_tell_what_was_lost() -> None:
    state = state_of(UNKNOWN)
    assert compared(state) == ()
    assert (state.figures()["streaming"].identical_to_ar, state.figures()["streaming"].first_difference) == (None, None)
    assert "by design" not in figures_table("All methods", state.figures())


def test_the_race_says_so_and_gives_long_names_their_room() -> None:
    page = race(Scene(state_of(OTHER)), 110, 20)
    text = "\n".join(lines(page))
    assert "first difference from ar at token 1: by design" in text
    assert "streaming " in text
    assert BY_DESIGN in next(row for row in lines(page)[4:] if "streaming" in row)
    assert not {"bad", "warn"} & inks(page)


def test_the_log_the_inspector_and_the_prompts_say_so() -> None:
    state = state_of(OTHER)
    page = log(Scene(state), 120, 12)
    assert "first difference from ar at token 1" in "\n".join(lines(page))
    assert BY_DESIGN in "\n".join(lines(page))
    inspected = inspect(Scene(state, cursor=1), 90, 10)
    assert "ar has a different token here: by design" in "\n".join(lines(inspected))
    assert not {"bad", "warn"} & (inks(page) | inks(inspected))
    assert BY_DESIGN in "\n".join(lines(prompts(Scene(structs.replace(state, prompt=Prompt(1, 1))), 110, 10)))


def test_what_is_printed_in_the_end_says_so() -> None:
    state, found = RunState(), SessionLog()
    for event in OTHER:
        state = apply(state, event)
        found = found.apply(event, state)
    told = exit_lines(found)
    assert told[1].endswith(BY_DESIGN)
    assert told[2] == f"streaming: {WHY_BY_DESIGN}"


def test_a_run_without_a_screen_says_so() -> None:
    out, err = io.StringIO(), io.StringIO()
    transcript = Transcript(out, err, as_json=False)
    for event in [*OTHER, Summary(methods=fold(OTHER).figures())]:
        transcript.feed(event)
    assert "streaming: the text differs from that of ar by design\n" in err.getvalue()


def test_the_decoder_is_not_stopped_there() -> None:
    def stops(events: list[Event]) -> list[str]:
        conditions, state, found = Conditions(frozenset(["difference"])), RunState(), list[str]()
        for event in events:
            before, state = state, apply(state, event)
            found += [reason] if (reason := met(conditions, before, state, event)) else []
        return found

    assert stops(OTHER) == stops(UNKNOWN) == []
    assert stops(TOO_EARLY) == ["streaming differs from ar at token 1, round 2 of ar"]
    assert stops(played("linear")) == ["linear differs from ar at token 1, round 2 of ar"]


def test_the_page_of_a_recording_says_so() -> None:
    assert "no, by design" in figures_table("All methods", state_of(OTHER).figures())
    assert "by design" not in figures_table("All methods", state_of(played("linear")).figures())
