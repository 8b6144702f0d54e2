"""Tests of the commands that read recordings: `dynatui why` names limits, `dynatui report` writes a page or a film."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from decoder.analysis.findings import MethodCase
from dynatui.cli.why import places, report
from dynatui.main import main
from tests.dynatui.cli.fake_screen import Printed, Refused
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.pty_terminal import written

TRACES = Path(__file__).parents[2] / "traces"


def test_the_methods_are_ranked_first_and_then_each_finding_is_told_once(printed: Printed) -> None:
    speeds, _, findings = printed("why", str(TRACES / "lighthouse.jsonl")).partition("\n\n")
    assert speeds.splitlines() == [
        "Speed-up over plain decoding (ar)",
        "  dynatree  2.15; same text as ar",
        "  fixed     1.77; same text as ar",
        "  linear    1.44; same text as ar",
    ]
    told = " ".join(findings.split())
    assert told.startswith(
        "dynatree, linear, fixed: the draft disagrees with the target: 25% to 61% of the 2.6 to 5.0 levels "
        "drafted per round are accepted;"
    )
    assert told.count("What would help") == told.count("the draft disagrees") == 1


def test_over_several_prompts_findings_name_those_that_they_hold_for(printed: Printed) -> None:
    told = " ".join(printed("why", str(TRACES / "demo.jsonl")).split())
    assert "medians of 2 prompts, with minimum and maximum auto 1.60 (1.58 to 1.62);" in told
    assert "dynatree, auto, fixed on both prompts: drafting takes 28% to 41% of a round" in told
    assert "Then, for dynatree on both prompts; fixed on prompt 1: smaller trees" in told
    assert "linear on both prompts: the draft disagrees" in told
    assert 'prompt 2: "Gentlemen," said the judge,' in told


LIGHTHOUSE = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8")


def saved(folder: Path, *lines: str) -> str:
    path = folder / "one.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_what_could_be_read_is_told_and_then_the_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, LIGHTHOUSE + LIGHTHOUSE.replace('"type":"start"', '"type":"stop"', 1).rstrip())
    whole = Path(path).read_text(encoding="utf-8")
    for content, told, place in ((whole, "dynatree  2.15", "one.jsonl: line "), ("Once upon a time", "", "one.jsonl")):
        Path(path).write_text(content, encoding="utf-8")
        assert main(["why", path]) == 2
        printed, said = capsys.readouterr()
        assert told in printed
        assert len(said.splitlines()) == 1
        assert place in said


def test_no_line_is_wider_than_a_narrow_terminal_or_steers_it(tmp_path: Path, printed: Printed) -> None:
    assert max(map(len, printed("why", str(TRACES / "demo.jsonl")).splitlines())) <= 80
    first, *others = LIGHTHOUSE.splitlines()
    run = json.loads(first) | {"prompt": "\x1b]52;c;UFdORUQ=\x07 \u202e and more"}
    path = saved(tmp_path, json.dumps(run), *others)
    assert not set(printed("why", path)) & {"\x1b", "\x07", "\u202e"}


def test_a_text_that_is_not_that_of_plain_decoding_is_told_beside_its_speed(tmp_path: Path, printed: Printed) -> None:
    path = saved(tmp_path, LIGHTHOUSE.replace('"committed":[236,2263]', '"committed":[236,9]', 1).rstrip())
    assert "its text differs from that of ar, first at token 1" in " ".join(printed("why", path).split())


def test_json_holds_the_numbers_behind_the_sentences(printed: Printed) -> None:
    methods = json.loads(printed("why", str(TRACES / "lighthouse.jsonl"), "--json").splitlines()[0])["methods"]
    assert methods["ar"] is None
    tree = methods["dynatree"]
    assert tree["speedup"] == pytest.approx(tree["tokens_per_round"] / tree["break_even"])
    assert [bound["gain"] for bound in tree["bounds"]] == sorted((b["gain"] for b in tree["bounds"]), reverse=True)


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


LONELY = case(1, "linear", None, None)


@pytest.mark.parametrize(
    ("cases", "told"),
    [
        *(
            ([case(number, "linear", where) for number, where in enumerate(differences, 1)], told)
            for differences, told in (
                ([None, None], "same text as ar"),
                ([None, 7], "its text differs from that of ar on prompt 2, first at token 7"),
                ([3, 7], "its text differs from that of ar on both prompts, first at tokens 3, 7"),
                ([9, 3, 7, 8], "its text differs from that of ar on all 4 prompts, first at token 3 or later"),
            )
        ),
        ([case(1, "hf"), case(2, "hf")], "hf on both prompts: does not show its draft, so only the method's time is"),
        (
            [case(1, "linear"), case(2, "linear")],
            "linear on both prompts: has drafted nothing, or ran for fewer than 5",
        ),
        ([LONELY], "linear - the speed-up is unknown: ar did not run beside it"),
        (
            [replace(LONELY, reason="machine busy")],
            "linear - the speed-up is unknown: the machine was busy … linear: cannot be judged: the machine was busy, "
            "so times do not measure the method.",
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_is_known_or_unknown_of_methods_is_told_with_the_prompts(cases: list[MethodCase], told: str) -> None:
    said = " ".join(" ".join(report(cases, ["x"] * len(cases))).split())
    assert all(part in said for part in told.split(" … "))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def test_a_page_is_named_after_what_it_shows_and_replaced_only_by_force(
    recorded: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert main(["report", str(recorded)]) == 0
    page = Path("run.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    out, err = capsys.readouterr()
    assert (out, err.startswith("dynatui: wrote run.html (0.0")) == ("", True)
    Path("run.html").write_text("mine")
    assert "run.html exists already" in refused("report", str(recorded))
    assert Path("run.html").read_text() == "mine"
    assert main(["report", str(recorded), "--force"]) == 0
    assert Path("run.html").read_text(encoding="utf-8") == page


def test_a_page_goes_where_it_is_asked_for(recorded: Path) -> None:
    assert main(["report", str(recorded), "--output", "other.html"]) == 0
    assert [path.name for path in Path().iterdir()] == ["other.html"]


@pytest.mark.parametrize("content", [b"", b"words\n", b'{"type":"run","schema":99}\n'])
def test_bad_input_is_one_line_and_leaves_no_page(content: bytes, refused: Refused) -> None:
    Path("given").write_bytes(content)
    assert refused("report", "given").startswith("given")
    assert [path.name for path in Path().iterdir()] == ["given"]
    Path("loop").symlink_to("loop")
    assert refused("report", "loop").startswith("cannot read loop")


def test_one_run_of_a_recording(recorded: Path) -> None:
    written(recorded, [*story("First"), *story("Second")])
    assert main(["report", str(recorded), "--run", "2"]) == 0
    page = Path("run.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("Figures of prompt 2: Second", '"label":"2: Second"'))
    assert "First" not in page


def test_what_a_page_is_made_from_is_never_replaced(recorded: Path, refused: Refused) -> None:
    before = recorded.read_bytes()
    Path("link.html").symlink_to(recorded)
    for name in (str(recorded), "link.html"):
        assert "is a source of the page and is not overwritten; set --output to another file" in refused(
            "report", str(recorded), "--output", name, "--force"
        )
    assert recorded.read_bytes() == before


def test_what_a_headless_run_has_recorded_becomes_a_page(engine: FakeEngine) -> None:
    assert main(["--headless", "--prompt", "Once", "--record", "live.jsonl"]) == 0
    assert engine.prompts
    assert main(["report", "live.jsonl"]) == 0
    assert "Once" in Path("live.html").read_text(encoding="utf-8")


def test_a_page_of_a_recording_needs_no_torch(recorded: Path) -> None:
    code = "import sys; from dynatui.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "report", str(recorded)], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_a_run_becomes_an_asciicast_by_the_rules_of_pages_if_named_so(recorded: Path, refused: Refused) -> None:
    assert "has no run 99" in refused("report", str(recorded), "--output", "run.cast", "--run", "99")
    Path("run.cast").write_text("mine")
    assert "run.cast exists already" in refused("report", str(recorded), "--output", "run.cast")
    assert [path.read_text() for path in Path().iterdir()] == ["mine"]
    assert main(["report", str(recorded), "--output", "run.cast", "--force"]) == 0
    header, *frames = map(msgspec.json.decode, Path("run.cast").read_bytes().splitlines())
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    assert {kind for _, kind, _ in frames} == {"o"}
