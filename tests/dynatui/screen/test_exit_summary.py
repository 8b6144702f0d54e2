"""The summary on the normal screen after the app: results and the best knobs seen, even after days of watching."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.cells import cell_len

from decoder.events import Event, Knob, Knobs, Round, Run, Start, Summary
from decoder.knobs import KnobName, TunableParameters
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.linear import Linear
from dynatui.record.reader import read_events
from dynatui.screen.run import lines
from dynatui.screen.settings_tried import options
from dynatui.sources.playback import TraceSource
from dynatui.state.ab_comparison import KnobSetting
from dynatui.state.run_state import Failure, Loading, Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.compared_runs import compared
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import (
    plain_round,
    run,
    runs_of,
    sampled_run,
    story,
    tree_round,
    turned_temperature,
)

TUNED = PRESETS["tuned"]
DEMO = read_events(Path(__file__).parents[2] / "traces" / "demo.jsonl")


def log_of(records: Iterable[Record]) -> SessionLog:
    state, log = RunState(), SessionLog()
    for record in records:
        state = apply(state, record)
        log = log.apply(record, state)
    return log


def told(*records: Record, width: int = 80) -> list[str]:
    return lines(log_of(records), width=width)


def begun(at: str = "1", prompt: str = "Once upon", **parameters: Any) -> Run:
    own = {**asdict(TUNED), **parameters}
    return structs.replace(run(prompt=prompt), started_at=at, methods={"dynatree": own, "ar": {}})


def turned(name: KnobName, value: float, at: int, **changed: Any) -> Knob:
    knob = Knob(method="dynatree", round=at, name=name, old=0.0, new=value, source="user")
    return structs.replace(knob, **changed)


def rounds(numbers: Iterable[int], round_s: float = 0.02, knobs: Knobs | None = None, t: float = 0.0) -> list[Event]:
    in_force = knobs or Knobs(tau_h=TUNED.tau_h, tau_l=TUNED.tau_l, d0=4.0)
    return [
        structs.replace(tree_round(number), t=t + round_s * (place + 1), knobs=in_force)
        for place, number in enumerate(numbers)
    ]


def burst(number: int) -> Round:
    plain = structs.replace(plain_round("hf", number), draft_forwards=None, position=2 * number)
    return structs.replace(plain, committed=[50, 50])


PLAIN = [plain_round("ar", number) for number in range(30)]
WARM = structs.replace(begun(), temperature=0.6)
FASTER = [*rounds(range(25), 0.03), turned("d0", 6.0, 25)]


def test_what_is_kept_does_not_grow_with_the_number_of_rounds_settings_and_runs() -> None:
    log = log_of(record for n in range(300) for record in (begun(str(n), f"p{n}", d_max=n), *rounds(range(1))))
    assert len(log.all_runs()) == 21
    assert len(log.tried) == 64


def best(*runs: list[Event]) -> list[str]:
    return [line for line in told(*chain(*runs)) if "compared with A" in line]


def test_the_fastest_knobs_are_those_that_were_faster_than_a_over_the_same_tokens() -> None:
    depth, faster = (compared(at=at, b=DynaTree(d0=d0), b_s=b_s) for at, d0, b_s in (("1", 6, 0.018), ("2", 4, 0.015)))
    assert best(depth, faster) == ["fastest of those compared with A: --preset paper --d0 4"]
    assert best(faster, compared(at="3", b_s=0.021)) == best(depth, faster)
    assert best(compared(b_s=0.021)) == ["none of those compared with A is clearly faster"]


def test_a_setting_that_was_never_decoded_beside_another_is_not_called_faster() -> None:
    page = told(begun(), *rounds(range(25), 0.03), turned("d0", 6.0, 25), *rounds(range(25, 50), 0.001, t=0.75))
    assert [line.split()[-2:] for line in page if "D0 6" in line] == [["not", "compared"]]
    assert not any("faster" in line or "fastest" in line for line in page)


MOVING = [
    *(*rounds(range(10)), turned("d0", 4.5, 10, source="history")),
    *rounds(range(10, 25), knobs=Knobs(0.87, TUNED.tau_l, 4.5), t=0.2),
]
OF_AR = [*rounds(range(10)), turned("tau", 0.5, 10, method="ar"), *rounds(range(10, 25), t=0.2)]
TWICE: list[Record] = [begun("1"), *rounds(range(15)), begun("2"), *rounds(range(15), 0.04)]
WARMER = [turned_temperature("dynatree", 25, 0.6, 0.8), *rounds(range(25, 50), 0.02, t=1.0)]


def test_a_replay_that_goes_back_counts_a_run_once() -> None:
    straight, scrubbed = TraceSource(runs_of(DEMO)), TraceSource(runs_of(DEMO))
    for place in (50, 5) * 3:
        scrubbed.seek_round("dynatree", place)
    for source in (straight, scrubbed):
        source.play(source.played_s[1])
    assert lines(log_of(scrubbed.records)) == lines(log_of(straight.records))


def test_the_figures_are_those_of_the_screen() -> None:
    log = log_of(DEMO[:300])
    assert log.all_runs()[-1].figures == log.state.figures()["dynatree"]


def test_files_and_the_command_can_be_copied_and_before_the_first_round_there_is_nothing_to_say() -> None:
    path, command = Path("/srv") / ("long" * 30), "dynatui --prompt " + "x" * 100
    expected = [f"written: {path}", "command line of these settings:", f"  {command}"]
    assert lines(SessionLog(), [path], command) == expected
    assert told(Loading("models"), Prompt(1, 1), run(), Failure("no memory", 3)) == []


@pytest.mark.parametrize("width", [20, 80, 100, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal_can_be(width: int) -> None:
    wide = begun(prompt="漢字 " * 40)
    assert all(cell_len(line) <= max(80, width) for line in lines(log_of([wide, *rounds(range(30))]), width=width))


def near_tie() -> list[Record]:
    *before, summary = story()
    assert isinstance(summary, Summary)
    own = structs.replace(summary.methods["dynatree"], identical_to_ar=False, near_tie=True)
    return [Prompt(3, 9), *before, Summary(methods={"dynatree": own})]


def setting(method: str, rules: TunableParameters) -> KnobSetting:
    return KnobSetting(method, tuple((name, rules.knob(name)) for name in rules.ends()))


OTHERS: tuple[tuple[str, TunableParameters], ...] = (
    *(("auto", Auto(d0=6)), ("linear", Linear(7)), ("stranger", Linear(7))),
)
HASTY = rounds(range(25, 44), 0.001, Knobs(TUNED.tau_h, TUNED.tau_l, 6.0), t=0.75)
SHORT = rounds(range(2))
THREE_RUNS = [begun("1", "first"), *SHORT, begun("2", "none"), begun("3", "last"), *SHORT]
DAYS: list[Record] = [record for n in range(50) for record in (Prompt(n + 1, 50), begun(str(n), f"p{n}"), *SHORT)]
HF: list[Record] = [sampled_run(("hf", "ar")), *map(burst, range(3)), plain_round("ar", 0)]
WILD: tuple[dict[str, Any], ...] = (
    *({"branching": "wide"}, {"branching": [1]}),
    {"d_max": "x", "tau": [[]], "history": None},
)

test_golden = golden(
    {
        "a finished run shows the engines own figures": lambda: told(*near_tie()),
        "a run that was left shows what there was": lambda: told(
            begun(), Start(method="ar", prefill_s=0.0), *story()[3:7]
        ),
        "a run is compared with ar alone": lambda: told(
            structs.replace(run(("dynatree",)), started_at="1"), *rounds(range(3))
        ),
        "every run has its line under the number of its own prompt and empty ones none": lambda: [
            told(*THREE_RUNS),
            told(Prompt(4, 9), *THREE_RUNS[:3], Prompt(7, 9), begun("2", "then"), *SHORT),
        ],
        "of days of watching the newest runs are listed and the others counted": lambda: told(*DAYS),
        "settings are listed with what they were compared with": lambda: [
            *(told(*compared(), *compared(at="2", b=DynaTree(d0=4)), width=width) for width in (80, 120)),
            told(*compared()[:60]),
            told(begun(), *FASTER, *HASTY),
        ],
        "what history moves does not make another setting": lambda: told(begun(history=True), *MOVING),
        "a small value is given again as it was": lambda: told(
            begun(), turned("rho_stop", 0.005, 0), *rounds(range(25))
        ),
        "a setting is judged over all prompts": lambda: told(*TWICE),
        "turns of other methods leave the setting alone": lambda: told(begun(), *OF_AR),
        "settings that differ in temperature are others and say so": lambda: [
            told(WARM, *rounds(range(25), 0.04), *WARMER),
            told(WARM, *rounds(range(25))),
        ],
        "a recording may claim any parameters": lambda: [
            told(begun(**parameters), *rounds(range(30))) for parameters in WILD
        ],
        "the options of a setting are those that differ from what holds without": lambda: [
            options(setting("dynatree", rules))
            for rules in (PRESETS["paper"], replace(TUNED, n_max=256, branching=(1, 2, 4)), TUNED)
        ]
        + [options(setting(method, rules)) for method, rules in OTHERS],
        "methods without knobs have no best knobs": lambda: [
            told(structs.replace(run(("ar",)), started_at="1"), *PLAIN),
            told(sampled_run(("ar",)), *PLAIN, turned_temperature("ar", 30, 0.6, 0.8)),
        ],
        "hf that draws alone is said to be left out of the comparison": lambda: [
            *(told(*HF, width=width) for width in (120, 60)),
            told(structs.replace(sampled_run(("hf", "ar")), temperature=0.0), *HF[1:]),
        ],
    }
)
