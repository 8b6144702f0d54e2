"""The summary on the normal screen after the app: results and the best knobs seen, even after days of watching."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import structs
from rich.cells import cell_len

from decoder.events import Event, Figures, Knob, Knobs, Round, Run, Start, Summary
from decoder.knobs import KnobName, TunableParameters
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS
from decoder.methods.linear import Linear
from dynatui.record.reader import read_events
from dynatui.screen.run import lines, options
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Failure, Loading, Prompt, Record, RunState, apply
from dynatui.state.session_log import FEWEST_ROUNDS, KnobSetting, SessionLog
from tests.dynatui.scripted_runs import (
    HOSTILE,
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


def begun(at: str = "1", prompt: str = "Once upon", **parameters: Any) -> Run:
    own = {**asdict(TUNED), **parameters}
    return structs.replace(run(prompt=prompt), started_at=at, methods={"dynatree": own, "ar": {}})


def turned(name: KnobName, value: float, at: int, source: Literal["user", "history"] = "user") -> Knob:
    return Knob(method="dynatree", round=at, name=name, old=0.0, new=value, source=source)


def rounds(numbers: Iterable[int], round_s: float = 0.02, knobs: Knobs | None = None, t: float = 0.0) -> list[Event]:
    in_force = knobs or Knobs(tau_h=TUNED.tau_h, tau_l=TUNED.tau_l, d0=4.0)
    return [
        structs.replace(tree_round(number), t=t + round_s * (place + 1), knobs=in_force)
        for place, number in enumerate(numbers)
    ]


def words(line: str) -> str:
    return " ".join(line.split())


def test_a_finished_run_shows_the_engines_own_figures() -> None:
    *before, summary = story()
    assert isinstance(summary, Summary)
    told = structs.replace(summary.methods["dynatree"], identical_to_ar=False, near_tie=True)
    heading, line, *_ = lines(log_of([Prompt(3, 9), *before, Summary(methods={"dynatree": told})]))
    assert words(heading) == "dynatree on rounds tokens L-bar acc. rate tokens/s speed-up same as ar"
    assert words(line) == "3 Once upon 6 18 3.00 40% 150 3.00 near tie"


def test_a_run_that_was_left_shows_what_there_was() -> None:
    line = lines(log_of([begun(), Start(method="ar", prefill_s=0.0), *story()[3:7]]))[1]
    assert words(line) == "1 Once upon 2 6 3.00 40% 150 - yes"


def test_a_run_is_compared_with_ar_alone() -> None:
    alone = structs.replace(run(("dynatree",)), started_at="1")
    assert lines(log_of([alone, *rounds(range(3))]))[1].split()[-2:] == ["-", "-"]


def test_every_run_has_its_line_and_empty_ones_none() -> None:
    records = [begun("1", "first"), *rounds(range(2)), begun("2", "none"), begun("3", "last"), *rounds(range(2))]
    assert [line.split()[1] for line in lines(log_of(records))[1:3]] == ["first", "last"]


def test_of_days_of_watching_the_newest_runs_are_listed_and_the_others_counted() -> None:
    log = log_of(record for n in range(50) for record in (Prompt(n + 1, 50), begun(str(n), f"p{n}"), *rounds(range(2))))
    told = lines(log)
    assert [line.split()[1] for line in told[1:22]] == [f"p{n}" for n in range(29, 50)]
    assert told[22] == "and 29 earlier runs"


def test_what_is_kept_does_not_grow_with_the_number_of_rounds_settings_and_runs() -> None:
    log = log_of(
        record
        for number in range(300)
        for record in (begun(str(number), f"p{number}", d_max=number), *rounds(range(1)))
    )
    assert len(log.all_runs()) == 21
    assert len(log.tried) == 64


def best(records: Sequence[Record]) -> list[str]:
    return [line for line in lines(log_of(records)) if "best measured knobs" in line or line.startswith("  ")]


def test_the_best_knobs_are_those_with_most_tokens_a_second() -> None:
    fast = Knobs(tau_h=0.85, tau_l=TUNED.tau_l, d0=6.0)
    told = best(
        [
            begun(history=True),
            *rounds(range(25), 0.03),
            turned("tau_h", 0.85, 25),
            turned("d0", 6.0, 25),
            *rounds(range(25, 50), 0.02, fast, t=0.75),
        ]
    )
    assert told == [
        "best measured knobs of dynatree: --tau-h 0.85 --d0 6 --history",
        "  150 tokens/s, L-bar 3.00 over 25 rounds",
        "  best of 2 settings with 20 rounds or more in this session; only a hint",
    ]


def test_a_setting_that_was_hardly_tried_is_not_judged() -> None:
    hasty = [
        *rounds(range(25), 0.03),
        turned("d0", 6.0, 25),
        *rounds(range(25, 44), 0.001, Knobs(TUNED.tau_h, TUNED.tau_l, 6.0), t=0.75),
    ]
    assert best([begun(), *hasty])[0] == "best measured knobs of dynatree: --d0 4"
    assert best([begun(), *rounds(range(FEWEST_ROUNDS - 1))]) == []


def test_what_history_moves_does_not_make_another_setting() -> None:
    moving = [turned("d0", 4.5, 10, "history"), *rounds(range(10, 25), knobs=Knobs(0.87, TUNED.tau_l, 4.5), t=0.2)]
    told = best([begun(history=True), *rounds(range(10)), *moving])
    assert told[0] == "best measured knobs of dynatree: --d0 4 --history"
    assert "over 25 rounds" in told[1]
    assert "the only setting with" in told[2]


def test_a_small_value_is_given_again_as_it_was() -> None:
    records = [begun(), turned("rho_stop", 0.005, 0), *rounds(range(25))]
    assert best(records)[0] == "best measured knobs of dynatree: --d0 4 --rho-stop 0.005"


def test_a_setting_is_judged_over_all_prompts() -> None:
    records = [begun("1"), *rounds(range(15)), begun("2"), *rounds(range(15), 0.04)]
    assert best(records)[1] == "  100.0 tokens/s, L-bar 3.00 over 30 rounds"


def test_turns_of_other_methods_leave_the_setting_alone() -> None:
    other = structs.replace(turned("tau", 0.5, 10), method="ar")
    assert "over 25 rounds" in best([begun(), *rounds(range(10)), other, *rounds(range(10, 25), t=0.2)])[1]


def test_the_options_of_a_setting_are_those_that_differ_from_what_holds_without() -> None:
    def setting(method: str, rules: TunableParameters) -> KnobSetting:
        return KnobSetting(method, tuple((name, rules.knob(name)) for name in rules.ends()))

    assert options(setting("dynatree", PRESETS["paper"])) == "--preset paper"
    assert options(setting("dynatree", replace(TUNED, n_max=256, branching=(1, 2, 4)))) == (
        "--branching 1,2,4 --n-max 256"
    )
    assert options(setting("dynatree", TUNED)) == "the default values of dynatree"
    assert options(setting("auto", Auto(d0=6))) == "--auto d0=6"
    assert options(setting("linear", Linear(7))) == "--k 7"
    assert options(setting("stranger", Linear(7))) == ""


def test_a_run_stands_under_the_number_of_its_own_prompt() -> None:
    records = [
        Prompt(4, 9),
        begun("1", "first"),
        *rounds(range(2)),
        Prompt(7, 9),
        begun("2", "then"),
        *rounds(range(2)),
    ]
    assert [line.split()[:2] for line in lines(log_of(records))[1:3]] == [["4", "first"], ["7", "then"]]


def test_a_replay_that_goes_back_counts_a_run_once() -> None:
    straight, scrubbed = TraceSource(runs_of(DEMO)), TraceSource(runs_of(DEMO))
    straight.seek(1e9)
    for _ in range(3):
        scrubbed.seek_round("dynatree", 50)
        scrubbed.seek_round("dynatree", 5)
    scrubbed.seek(1e9)
    assert lines(log_of(scrubbed.records)) == lines(log_of(straight.records))


def test_the_figures_are_those_of_the_screen() -> None:
    state, log = RunState(), SessionLog()
    for event in DEMO[:300]:
        state = apply(state, event)
        log = log.apply(event, state)
    assert log.all_runs()[-1].figures == state.figures()["dynatree"]


def test_files_and_the_command_can_be_copied() -> None:
    path, command = Path("/srv") / ("long" * 30), "dynatui --prompt " + "x" * 100
    expected = [f"written: {path}", "command line of these settings:", f"  {command}"]
    assert lines(SessionLog(), [path], command) == expected


def test_before_the_first_round_there_is_nothing_to_say() -> None:
    assert lines(log_of([Loading("models"), Prompt(1, 1), run(), Failure("no memory", 3)])) == []


@pytest.mark.parametrize("width", [20, 80, 100, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal_can_be(width: int) -> None:
    wide = begun(prompt="漢字 " * 40)
    for line in lines(log_of([wide, *rounds(range(30))]), width=width):
        assert cell_len(line) <= max(80, width)


def test_nothing_foreign_steers_the_terminal() -> None:
    hostile = structs.replace(run((HOSTILE,), HOSTILE), started_at=HOSTILE)
    told_rounds = [structs.replace(event, method=HOSTILE) for event in rounds(range(30)) if isinstance(event, Round)]
    records: list[Record] = [hostile, *told_rounds]
    told = "\n".join(lines(log_of(records), [Path(HOSTILE)], f"dynatui --prompt {HOSTILE}"))
    assert not set("\x1b\x07\x9b\u202e\r\x7f") & set(told)


@pytest.mark.parametrize(
    "parameters", [{"branching": "wide"}, {"branching": [1]}, {"d_max": "x", "tau": [[]], "history": None}]
)
def test_a_recording_may_claim_any_parameters(parameters: dict[str, Any]) -> None:
    assert best([begun(**parameters), *rounds(range(30))])[0].startswith("best measured knobs of dynatree: --d0 4")


def test_methods_without_knobs_have_no_best_knobs() -> None:
    plain = structs.replace(run(("ar",)), started_at="1")
    told = lines(log_of([plain, *(plain_round("ar", number) for number in range(30))]))
    assert len(told) == 2
    assert told[0].startswith("ar on")
    assert isinstance(log_of([plain]).state.figures()["ar"], Figures)


def burst(number: int) -> Round:
    plain = structs.replace(plain_round("hf", number), draft_forwards=None, position=2 * number)
    return structs.replace(plain, committed=[50, 50])


def test_hf_that_draws_alone_is_said_to_be_left_out_of_the_comparison() -> None:
    begins = sampled_run(("hf", "ar"))
    after: list[Record] = [*(burst(number) for number in range(3)), plain_round("ar", 0)]
    records = [begins, *after]
    told = lines(log_of(records), width=120)
    assert told[1].endswith("own noise")
    assert told[2].startswith("hf: at T above 0 it samples with its own noise")
    assert "hf: own noise, not compared" in lines(log_of(records), width=60)
    assert "to 0" in lines(log_of([structs.replace(begins, temperature=0.0), *after]))[1]


def test_settings_that_differ_in_temperature_are_others_and_say_so() -> None:
    warm = structs.replace(begun(), temperature=0.6)
    warmer = turned_temperature("dynatree", 25, 0.6, 0.8)
    records = [warm, *rounds(range(25), 0.04), warmer, *rounds(range(25, 50), 0.02, t=1.0)]
    assert best(records)[0] == "best measured knobs of dynatree: --temperature 0.8 --preset tuned --d0 4"
    assert "of 2 settings" in best(records)[2]
    assert (
        best([warm, *rounds(range(25))])[0]
        == "best measured knobs of dynatree: --temperature 0.6 --preset tuned --d0 4"
    )


def test_a_method_without_knobs_of_its_own_has_no_best_ones() -> None:
    warm: list[Record] = [sampled_run(("ar",)), *(plain_round("ar", number) for number in range(30))]
    assert best([*warm, turned_temperature("ar", 30, 0.6, 0.8)]) == []
