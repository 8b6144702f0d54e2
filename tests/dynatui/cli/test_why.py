"""Tests of `dynatui why`, which names what limits the methods of a recording."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from decoder.analysis.findings import MethodCase
from dynatui.cli.why import places, report
from dynatui.main import main
from tests.dynatui.cli.fake_screen import Printed, Refused

TRACES = Path(__file__).parents[2] / "traces"


def test_the_methods_are_ranked_first_and_then_each_finding_is_told_once(printed: Printed) -> None:
    speeds, _, findings = printed("why", str(TRACES / "lighthouse.jsonl")).partition("\n\n")
    assert speeds.splitlines() == [
        "Speed-up over plain decoding (ar)",
        "  dynatree  2.16; same text as ar",
        "  fixed     1.76; same text as ar",
        "  linear    1.45; same text as ar",
    ]
    told = " ".join(findings.split())
    assert told.startswith(
        "dynatree, linear, fixed: the draft disagrees with the target: 25% to 61% of the 2.6 to 5.0 levels "
        "drafted per round are accepted;"
    )
    assert told.count("What would help") == told.count("the draft disagrees") == 1


def test_over_several_prompts_findings_name_those_that_they_hold_for(printed: Printed) -> None:
    told = " ".join(printed("why", str(TRACES / "demo.jsonl")).split())
    assert "medians of 2 prompts, with minimum and maximum auto 1.56 (1.55 to 1.58);" in told
    assert "dynatree, auto, fixed on both prompts: drafting takes 28% to 41% of a round" in told
    assert "Then, for dynatree on both prompts; fixed on prompt 1: smaller trees" in told
    assert "linear on both prompts: the draft disagrees" in told
    assert 'prompt 2: "Gentlemen," said the judge,' in told


def only(method: str, tmp_path: Path) -> Path:
    """Writes the recorded run with only one method and ar."""
    kept = list[str]()
    for line in (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["type"] in ("run", "summary"):
            event["methods"] = {name: found for name, found in event["methods"].items() if name in (method, "ar")}
        if event.get("method", method) in (method, "ar"):
            kept.append(json.dumps(event))
    path = tmp_path / "one.jsonl"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return path


def test_one_method_on_one_prompt_is_told_in_its_own_words(tmp_path: Path, printed: Printed) -> None:
    heading, *lines = printed("why", str(only("dynatree", tmp_path))).splitlines()
    assert heading.startswith("prompt 1: The keeper had not spoken")
    told = " ".join(" ".join(lines).split())
    assert told.startswith("dynatree is 2.16 times as fast as plain decoding: a round commits 2.60 tokens")
    assert "What limits it most: the draft disagrees" in told
    assert told.endswith("ar guesses nothing: the other methods are compared with it.")


def test_what_could_be_read_before_a_fault_is_told_and_then_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.jsonl"
    run = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8")
    path.write_text(run + run.replace('"type":"start"', '"type":"stop"', 1), encoding="utf-8")
    assert main(["why", str(path)]) == 2
    printed, said = capsys.readouterr()
    assert "dynatree  2.16" in printed
    assert len(said.splitlines()) == 1
    assert "broken.jsonl: line " in said


def test_no_line_is_wider_than_a_narrow_terminal(printed: Printed) -> None:
    assert max(map(len, printed("why", str(TRACES / "demo.jsonl")).splitlines())) <= 80


def test_json_holds_the_numbers_behind_the_sentences(printed: Printed) -> None:
    methods = json.loads(printed("why", str(TRACES / "lighthouse.jsonl"), "--json").splitlines()[0])["methods"]
    assert methods["ar"] is None
    tree = methods["dynatree"]
    assert tree["speedup"] == pytest.approx(tree["tokens_per_round"] / tree["break_even"])
    assert [bound["gain"] for bound in tree["bounds"]] == sorted((b["gain"] for b in tree["bounds"]), reverse=True)


def test_a_prompt_that_would_steer_the_terminal_is_made_harmless(tmp_path: Path, printed: Printed) -> None:
    first, *others = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8").splitlines()
    run = json.loads(first) | {"prompt": "\x1b]52;c;UFdORUQ=\x07 \u202e and more"}
    path = tmp_path / "hostile.jsonl"
    path.write_text("\n".join([json.dumps(run), *others]) + "\n", encoding="utf-8")
    assert not set(printed("why", str(path))) & {"\x1b", "\x07", "\u202e"}


def test_a_file_that_is_no_recording_is_refused_in_a_line(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("Once upon a time", encoding="utf-8")
    assert str(path) in refused("why", str(path))


def test_a_text_that_is_not_that_of_plain_decoding_is_told_beside_its_speed(tmp_path: Path, printed: Printed) -> None:
    text = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8")
    path = tmp_path / "other.jsonl"
    path.write_text(text.replace('"committed":[236,2263]', '"committed":[236,9]', 1), encoding="utf-8")
    assert "its text differs from that of ar, first at token 1" in " ".join(printed("why", str(path)).split())


def case(run: int, method: str, difference: int | None = None, speedup: float | None = 1.5) -> MethodCase:
    return MethodCase(run, method, None, speedup, compared=True, difference=difference, by_design=False)


@pytest.mark.parametrize(
    ("cases", "runs", "told"),
    [
        ([(1, "a"), (1, "b")], 1, "a, b"),
        ([(1, "a"), (1, "b"), (3, "a"), (3, "b"), (4, "a"), (5, "a")], 6, "a on prompts 1, 3-5; b on prompts 1, 3"),
        ([(1, "a"), (2, "a"), (2, "b")], 2, "a on both prompts; b on prompt 2"),
        ([(1, "a"), (2, "a"), (3, "a")], 3, "a on all 3 prompts"),
    ],
)
def test_places_are_written_shortly(cases: list[tuple[int, str]], runs: int, told: str) -> None:
    assert places(tuple(case(*each) for each in cases), runs) == told


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ([None, None], "same text as ar"),
        ([None, 7], "its text differs from that of ar on prompt 2, first at token 7"),
        ([3, 7], "its text differs from that of ar on both prompts, first at tokens 3, 7"),
        ([9, 3, 7, 8], "its text differs from that of ar on all 4 prompts, first at token 3 or later"),
    ],
)
def test_whether_texts_are_those_of_plain_decoding_is_told_with_the_prompts(
    differences: list[int | None], told: str
) -> None:
    found = [case(number, "linear", where) for number, where in enumerate(differences, 1)]
    assert told in " ".join(" ".join(report(found, ["x"] * len(found))).split())


def test_methods_of_which_nothing_is_known_are_told_once_with_the_reason() -> None:
    found = [case(run, name) for run in (1, 2) for name in ("hf", "linear")]
    told = " ".join(" ".join(report(found, ["x", "y"])).split())
    assert "hf on both prompts: does not show its draft, so only the method's time is known." in told
    assert "linear on both prompts: has drafted nothing, or ran for fewer than 5 rounds." in told


def test_without_plain_decoding_beside_it_a_method_has_no_speed() -> None:
    told = " ".join(" ".join(report([case(1, "linear", None, None)], ["x"])).split())
    assert "linear - the speed-up is unknown: ar did not run beside it" in told


def test_on_a_busy_machine_no_method_is_judged() -> None:
    found = [replace(case(1, "linear", None, None), reason="machine busy")]
    told = " ".join(" ".join(report(found, ["x"])).split())
    assert "linear - the speed-up is unknown: the machine was busy" in told
    assert "linear: cannot be judged: the machine was busy, so times do not measure the method." in told
