"""Tests of the command `dynatui report`: paths of pages, messages and exit codes."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decoder.events import encode
from dynatui.main import main
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine, story


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def test_a_page_is_named_after_what_it_shows_and_goes_to_this_folder(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(recorded)]) == 0
    assert Path("run.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dynatui: wrote run.html (0.0")


def test_a_page_goes_where_it_is_asked_for(recorded: Path) -> None:
    assert main(["report", str(recorded), "--output", "other.html"]) == 0
    assert [path.name for path in Path().iterdir()] == ["other.html"]


def test_the_same_recording_gives_the_same_page(recorded: Path) -> None:
    for name in ("a.html", "b.html"):
        assert main(["report", str(recorded), "--output", name]) == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_a_page_is_replaced_only_by_force(recorded: Path, refused: Refused) -> None:
    Path("run.html").write_text("mine")
    assert "run.html exists already" in refused("report", str(recorded))
    assert Path("run.html").read_text() == "mine"
    assert main(["report", str(recorded), "--force"]) == 0
    assert Path("run.html").read_text(encoding="utf-8").startswith("<!DOCTYPE")


@pytest.mark.parametrize("content", [b"", b"words\n", b'{"type":"run","schema":99}\n'])
def test_bad_input_is_one_line_and_leaves_no_page(content: bytes, refused: Refused) -> None:
    Path("given").write_bytes(content)
    assert refused("report", "given").startswith("given")
    assert [path.name for path in Path().iterdir()] == ["given"]


def test_one_run_of_a_recording(recorded: Path) -> None:
    recorded.write_bytes(b"".join(map(encode, [*story("First"), *story("Second")])))
    assert main(["report", str(recorded), "--run", "2"]) == 0
    page = Path("run.html").read_text(encoding="utf-8")
    assert "Second" in page
    assert "First" not in page
    assert "Figures of prompt 2: Second" in page
    assert '"label":"2: Second"' in page


def test_a_link_that_leads_to_itself_is_refused_in_one_line(refused: Refused) -> None:
    Path("loop").symlink_to("loop")
    assert refused("report", "loop").startswith("cannot read loop")


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


def test_a_run_becomes_an_asciicast_where_the_file_is_named_so(recorded: Path) -> None:
    assert main(["report", str(recorded), "--output", "run.cast"]) == 0
    header, *frames = map(msgspec.json.decode, Path("run.cast").read_bytes().splitlines())
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    assert frames
    assert all(kind == "o" for _, kind, _ in frames)


def test_a_film_follows_the_rules_of_pages(recorded: Path, refused: Refused) -> None:
    Path("run.cast").write_text("mine")
    assert "run.cast exists already" in refused("report", str(recorded), "--output", "run.cast")
    assert "has no run 99" in refused("report", str(recorded), "--output", "other.cast", "--run", "99")
    assert [path.read_text() for path in Path().iterdir()] == ["mine"]
