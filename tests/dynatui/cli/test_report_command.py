"""Tests of the command `dynatui report`: paths of pages, messages and exit codes."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dynatui.main import main
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.pty_terminal import written


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
    assert main(["report", str(recorded), "--output", "run.cast"]) == 0
    header, *frames = map(msgspec.json.decode, Path("run.cast").read_bytes().splitlines())
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    assert {kind for _, kind, _ in frames} == {"o"}
    assert "run.cast exists already" in refused("report", str(recorded), "--output", "run.cast")
    assert "has no run 99" in refused("report", str(recorded), "--output", "other.cast", "--run", "99")
    assert [path.name for path in Path().iterdir()] == ["run.cast"]
