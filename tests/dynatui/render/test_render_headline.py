"""The sentence at the top of the screen: its claims, its place at every width, and expected times."""

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.roofline import round_s, step_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Event, Expected, Summary
from dynatui.render.cards import cards
from dynatui.render.headline import compared, expected_words, headline, overhead_words
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import essentials, status
from dynatui.render.work import work
from dynatui.screen.widgets.canvas import DrawPanel
from dynatui.state.run_state import RunState
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import lines, plain_round, raced, run, state_of, story, tree_round

EXPECTED = Expected(target_read_s=0.002, target_row_s=0.0004, draft_pass_s=0.0001)
WARM = [tree_round(number) for number in range(WARM_UP_TOKENS)]


def measured(speedup: float, *, same: bool = True) -> RunState:
    took_s = 3 * 0.02 / speedup
    trees = [structs.replace(event, t=took_s * (event.round + 1)) for event in WARM]
    plain = [plain_round("ar", number) for number in range(3 * WARM_UP_TOKENS)]
    events: list[Event] = [run(("dynatree", "ar")), *raced(trees, plain)]
    told = dict(state_of(events).figures())
    told["dynatree"] = structs.replace(told["dynatree"], committed=256, target_forwards=70, identical_to_ar=same)
    told["ar"] = structs.replace(told["ar"], committed=256)
    return state_of([*events, Summary(methods=told)])


def test_it_stands_first_at_every_width() -> None:
    scene = Scene(measured(1.33))
    for width in range(5, 201):
        (line,) = lines(status(scene, width, 1))
        assert line.startswith("1.33x")
        assert len(line) == width
        assert lines(essentials(scene, width, 1))[0].startswith("1.33x")


def estimated(*events: Event, expected: Expected = EXPECTED) -> RunState:
    return state_of([structs.replace(run(), expected=expected), *events])


def test_the_overhead_of_a_round_is_its_time_beyond_the_estimate_for_its_own_size() -> None:
    state = estimated(*WARM)
    # Each round takes 20 ms, makes 2 draft passes and verifies 6 rows.
    estimate = round_s(EXPECTED, 2, 6)
    (slow,) = overhead_words(state)
    assert slow.startswith(
        f"A round takes 20.00 ms; memory and arithmetic of this machine need {1000 * estimate:.2f} ms by "
        "estimate, and the rest"
    )
    assert slow in " ".join(" ".join(line.strip("│ ") for line in lines(work(Scene(state), 150, 40))).split())
    (fast,) = overhead_words(estimated(*WARM, expected=Expected(target_read_s=0.019)))
    assert "need 19.00 ms by estimate, so only smaller trees or smaller weights help much" in fast


def test_the_overhead_is_told_once_the_watched_method_is_warm_and_reports_its_passes() -> None:
    plain = [plain_round("ar", number) for number in range(WARM_UP_TOKENS)]
    cold, warm = (structs.replace(estimated(*told), chosen="ar") for told in (plain[:-1], plain))
    assert (overhead_words(cold) == (), overhead_words(warm) == ()) == (True, False)
    assert overhead_words(estimated(*(structs.replace(event, draft_forwards=None) for event in WARM))) == ()


LIMIT = re.compile(r"at (most|least) ([\d.]+) (tokens/s|ms)")


@given(st.floats(0.02, 50.0))
def test_no_limit_on_the_screen_is_exceeded_by_what_is_measured(speed: float) -> None:
    """`speed`: of the measured rounds, relative to the expected times."""
    rounds = [plain_round("ar", number) for number in range(WARM_UP_TOKENS)]
    measured = [structs.replace(event, t=step_s(EXPECTED) / speed * (event.round + 1)) for event in rounds]
    begun = structs.replace(run(("ar",)), expected=EXPECTED)
    painters: list[DrawPanel] = [status, cards, work, race]
    scenes = Scene(state_of([begun])), Scene(state_of([begun, *measured]))
    shown = " ".join(" ".join(lines(painter(scene, 200, 12))) for painter in painters for scene in scenes)
    per_second = speed / step_s(EXPECTED)
    figures = {"tokens/s": per_second, "ms": 1000 / per_second}
    assert "estimate" in shown
    for bound, number, unit in LIMIT.findall(shown):
        assert figures[unit] <= float(number) if bound == "most" else figures[unit] >= float(number)


test_golden = golden(
    {
        "it says how fast in how many passes and that the text is the same": lambda: [
            inked(headline(measured(speedup))[:1]) for speedup in (1.326, 1.003, 0.931)
        ],
        "the header tells what fits of the expected times": lambda: [
            status(Scene(estimated()), width, 1) for width in (60, 80, 120, 200)
        ],
        "its wordings get shorter and end with the speed alone": lambda: headline(measured(1.33)),
        "at 80 columns it is whole": lambda: status(Scene(measured(1.33)), 80, 1),
        "before there is text there is no headline": lambda: (headline(state_of([run()])), headline(RunState())),
        "a text that is not that of ar is never called the same": lambda: headline(measured(1.33, same=False)),
        "one token in one pass is said in the singular": lambda: headline(
            state_of([run(("dynatree",)), structs.replace(tree_round(0), accepted=[], committed=[11])])
        ),
        "before both methods are warm it claims no speed": lambda: [
            headline(state_of([run(), *WARM, plain_round("ar", 0)]))[:1],
            headline(state_of([run(), *raced(WARM, (plain_round("ar", place) for place in range(WARM_UP_TOKENS)))]))[
                :1
            ],
        ],
        "plain decoding itself is compared with nothing": lambda: [
            headline(structs.replace(state_of(story()), chosen="ar"))[:1],
            compared(structs.replace(state_of(story()), chosen="ar")),
        ],
        "expected times are told before the first round only and where they are known": lambda: [
            *map(
                expected_words,
                (
                    estimated(),
                    estimated(expected=Expected(target_read_s=4.0)),
                    estimated(tree_round(0)),
                    state_of([run()]),
                    RunState(),
                ),
            ),
            overhead_words(state_of([run(), *WARM])),
        ],
    }
)
