"""Tests of the commands that read recordings: `dynatui why` names limits, `dynatui report` writes a page or a film."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from decoder.analysis.metrics import RunFold, Tally
from dynatui.cli.why import Texts, report
from dynatui.main import main
from tests.decoder.analysis.tallies import LIMITED, PLAIN, raced
from tests.dynatui.cli.fake_screen import Printed, Refused
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.pty_terminal import written

TRACES = Path(__file__).parents[2] / "traces"


def test_methods_are_told_the_fastest_first_each_in_its_own_words(printed: Printed) -> None:
    heading, *lines = printed("why", str(TRACES / "lighthouse.jsonl")).splitlines()
    assert heading.startswith("prompt 1: The keeper had not spoken")
    assert [line.split()[0] for line in lines if line[2] != " "] == ["dynatree", "fixed", "linear", "ar"]
    told = " ".join(" ".join(lines).split())
    assert told.startswith("dynatree is 2.15 times as fast as plain decoding: a round commits 2.60 tokens")
    assert told.count("What limits it most: the draft disagrees") == told.count("Its text is that of ar.") == 3
    assert told.endswith("ar drafts nothing: the other methods are compared with it.")


def test_texts_of_several_prompts_are_judged_together_with_the_range_over_them(printed: Printed) -> None:
    told = " ".join(printed("why", str(TRACES / "demo.jsonl")).split())
    assert 'prompt 2: "Gentlemen," said the judge,' in told
    assert "auto is 1.60 times as fast as plain decoding" in told
    assert "Over 2 prompts: 1.58 to 1.62 times." in told


LIGHTHOUSE = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8")


def saved(folder: Path, *lines: str) -> str:
    path = folder / "one.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_what_could_be_read_is_told_and_then_the_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, LIGHTHOUSE + LIGHTHOUSE.replace('"type":"start"', '"type":"stop"', 1).rstrip())
    whole = Path(path).read_text(encoding="utf-8")
    for content, told, place in (
        (whole, "dynatree is 2.15 times", "one.jsonl: line "),
        ("Once upon a time", "", "one.jsonl"),
    ):
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


def test_a_text_that_is_not_that_of_plain_decoding_is_told_with_its_prompts(tmp_path: Path, printed: Printed) -> None:
    other = LIGHTHOUSE.replace('"committed":[236,2263]', '"committed":[236,9]', 1).rstrip()
    difference = "Its text differs from the text of ar{}; the first difference is at token 1."
    assert difference.format("") in " ".join(printed("why", saved(tmp_path, other)).split())
    told = " ".join(printed("why", saved(tmp_path, LIGHTHOUSE.rstrip(), other)).split())
    assert difference.format(" on prompt 2") in told


def test_json_holds_the_numbers_behind_the_sentences(printed: Printed) -> None:
    methods = json.loads(printed("why", str(TRACES / "lighthouse.jsonl"), "--json").splitlines()[0])["methods"]
    assert methods["ar"] is None
    tree = methods["dynatree"]
    assert tree["speedup"] == pytest.approx(tree["tokens_per_round"] / tree["break_even"])
    assert [bound["gain"] for bound in tree["bounds"]] == sorted((b["gain"] for b in tree["bounds"]), reverse=True)


def told_of(*races: RunFold) -> str:
    methods = dict[str, Texts]()
    for number, race in enumerate(races, 1):
        for name in race.tallies:
            methods.setdefault(name, Texts()).add(race, name, number)
    return " ".join(" ".join(report(methods, ["x"] * len(races))).split())


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("hf", "hf does not show its draft, so only the method's time is known."),
        ("linear", "linear has drafted nothing, or ran for fewer than 5 rounds."),
    ],
)
def test_why_nothing_is_known_of_a_method_is_told(method: str, told: str) -> None:
    assert told in told_of(RunFold(tallies={method: Tally()}))


def test_a_text_on_a_busy_machine_is_not_judged() -> None:
    busy = raced({"linear": LIMITED["draft"], "ar": PLAIN})
    busy = replace(busy, waited_s=1e3)
    assert "linear cannot be judged: the machine was busy" in told_of(busy)
    once, twice = (told_of(raced({"linear": LIMITED["draft"], "ar": PLAIN}), *more) for more in ((), (busy,)))
    assert once.removeprefix("prompt 1: x") == twice.removeprefix("prompt 1: x prompt 2: x")


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
