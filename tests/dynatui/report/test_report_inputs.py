"""Kinds of files and folders are recognised by content; others are refused in one line that says what to give."""

import functools
import json
import operator
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.errors import DecoderError
from decoder.events import encode
from dynatui.report import inputs
from dynatui.report.inputs import page_of
from tests.decoder.bench.paper.reports import paper_report
from tests.dynatui.report.measurements import speed_report
from tests.dynatui.scripted_runs import run, story

RECORDING = b"".join(map(encode, story()))
SPEED = msgspec.json.encode(speed_report())


def paper_bytes() -> bytes:
    return msgspec.json.encode(paper_report(), enc_hook=float)


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path, run_number: int | None = None) -> str:
    with pytest.raises(DecoderError) as caught:
        page_of(path, run_number)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recording_is_one_whatever_its_name(tmp_path: Path) -> None:
    assert page_of(put(tmp_path / "x.bin", RECORDING)).scripts


def test_a_recording_that_was_cut_off_in_a_line_is_shown_up_to_the_last_whole_one(tmp_path: Path) -> None:
    whole, cut = put(tmp_path / "a", RECORDING), put(tmp_path / "b", RECORDING + b'{"type":"round","meth')
    assert page_of(whole).data == page_of(cut).data


def test_one_run_of_several_can_be_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "x", RECORDING + encode(run(prompt="Another")))
    assert "Another" in page_of(path, 2).body
    assert "Another" not in page_of(path, 1).body
    assert "has no run 3; give --run at most 2" in refusal(path, 3)


def test_a_recording_comes_through_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(RECORDING,))
    writer.start()
    assert page_of(pipe).scripts
    writer.join()


def test_every_line_of_a_measurement_of_speed_is_shown(tmp_path: Path) -> None:
    page = page_of(put(tmp_path / "x", SPEED + b"\n" + SPEED + b"\n"))
    assert page.body.count("<section") == 2
    assert not page.scripts


def test_a_folder_and_the_report_within_are_the_same(tmp_path: Path) -> None:
    report = put(tmp_path / "report.json", paper_bytes())
    (tmp_path / "figures").mkdir()
    put(tmp_path / "figures" / "speed.svg", b"<svg/>")
    page = page_of(tmp_path)
    assert page == page_of(report)
    assert page.body.count("data:image/svg+xml") == 1


def test_of_two_files_of_a_figure_the_smaller_is_shown(tmp_path: Path) -> None:
    put(tmp_path / "report.json", paper_bytes())
    (tmp_path / "figures").mkdir()
    put(tmp_path / "figures" / "speed.svg", b"<svg/>" + b" " * 100)
    put(tmp_path / "figures" / "speed.png", b"\x89PNG\r\n\x1a\n")
    body = page_of(tmp_path).body
    assert (body.count("data:image/png"), body.count("data:image/svg+xml")) == (1, 0)


def test_a_figure_that_has_two_names_is_shown_once(tmp_path: Path) -> None:
    put(tmp_path / "report.json", paper_bytes())
    (tmp_path / "figures").mkdir()
    for name, content in (("a.svg", b"<svg/>"), ("b.svg", b"<svg></svg>"), ("c.svg", b"<svg/>")):
        put(tmp_path / "figures" / name, content)
    assert page_of(tmp_path).body.count("<figure>") == 2


PRIVATE = b"a private key"


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """A folder of `bench paper` with one figure; beside it, a file that no page may have."""
    put(tmp_path / "private", PRIVATE)
    put(tmp_path / "picture.svg", b"<svg><!-- elsewhere --></svg>")
    folder = tmp_path / "paper"
    (folder / "figures").mkdir(parents=True)
    put(folder / "report.json", paper_bytes())
    put(folder / "figures" / "speed.svg", b"<svg/>")
    return folder


@pytest.mark.parametrize("target", ["../../private", "../../picture.svg", "speed.svg", "/dev/zero"])
@pytest.mark.parametrize("name", ["other.png", "other.svg", "speed.png"])
def test_no_link_in_a_folder_brings_a_file_into_its_page(paper: Path, name: str, target: str) -> None:
    (paper / "figures" / name).symlink_to(target)
    if name == "speed.png":
        (paper / "figures" / "speed.svg").unlink()
        put(paper / "figures" / "speed.svg", b"<svg/>" + b" " * 100)  # so that the link counts as the smaller file
    assert f"figures/{name} cannot go into a page: it is a link; remove it" in refusal(paper)


def test_figures_in_another_folder_are_not_those_of_the_paper(paper: Path) -> None:
    elsewhere = (paper / "figures").rename(paper.parent / "elsewhere")
    (paper / "figures").symlink_to(elsewhere)
    assert "figures cannot go into a page: it is a link or no folder; remove it" in refusal(paper)


def test_a_report_in_a_folder_is_no_link(paper: Path) -> None:
    elsewhere = (paper / "report.json").rename(paper.parent / "report.json")
    (paper / "report.json").symlink_to(elsewhere)
    assert "report.json: it is a link; give" in refusal(paper)
    assert page_of(elsewhere).body, "the user may name it"


@pytest.mark.parametrize("content", [PRIVATE, b"", b"<?xml version='1.0'?><password/>", b"\x89PNG", b"<!--" * 9])
@pytest.mark.parametrize("name", ["other.png", "other.svg"])
def test_only_pictures_are_figures_whatever_their_names(paper: Path, name: str, content: bytes) -> None:
    put(paper / "figures" / name, content)
    assert f"figures/{name} cannot go into a page: it is neither PNG nor SVG; remove it" in refusal(paper)


def test_a_pipe_among_the_figures_is_refused_at_once(paper: Path) -> None:
    os.mkfifo(paper / "figures" / "other.svg")
    assert "other.svg cannot go into a page: it is not a regular file; remove it" in refusal(paper)


@pytest.mark.parametrize(
    "content",
    [
        b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "x">\n<svg width="1"/>',
        b"\xef\xbb\xbf<!-- one --> <!-- -- > two -->\n<svg/>",
        b"<!DOCTYPE svg [ <!ENTITY a 'b'> ]><svg></svg>",
    ],
)
def test_pictures_of_other_programs_are_figures(paper: Path, content: bytes) -> None:
    put(paper / "figures" / "other.svg", content)
    assert page_of(paper).body.count("<figure>") == 2


def test_figures_together_are_no_larger_than_a_page(paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = (paper / "report.json").stat().st_size
    monkeypatch.setattr(inputs, "MOST_BYTES", report + 100)
    for name in ("a", "b", "c"):
        put(paper / "figures" / f"{name}.svg", f"<svg>{name}</svg>".encode() + b" " * (report // 3 + 50))
    assert "figures/c.svg cannot go into a page: with it, the figures have more bytes" in refusal(paper)


def test_a_report_without_figures_is_shown_without(tmp_path: Path) -> None:
    put(tmp_path / "report.json", paper_bytes())
    assert "<figure>" not in page_of(tmp_path).body


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello\n", "no recording and no benchmark"),
        (b'{"a":1}\n', "no recording and no benchmark"),
        (b"[" * 100_000, "no recording and no benchmark"),
        (b"\xff\x00\n", "no recording and no benchmark"),
        (b'{"type":"run"}\n', "line 1: "),
        (b'{"type":"run","schema":99}\n', "a newer dynatui wrote this line (schema 99"),
        (SPEED.replace(b'"schema":1', b'"schema":99'), "line 1 was written by a newer dynatui (schema 99"),
        (SPEED + b"\n{}\n", "line 2: "),
        (b'{"begun":{"schema":99}}', "written by a newer dynatui (schema 99"),
        (b'{"begun":{"schema":1}}', "missing required field"),
    ],
)
def test_what_is_neither_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert reason in refusal(put(tmp_path / "x", content))


def test_a_report_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "report.json", paper_bytes()[:-100])
    assert "report.json: Input data was truncated" in refusal(tmp_path)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path / "nothing")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert "contains no report.json; give a recording" in refusal(tmp_path)


def test_what_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(inputs, "opened", closed)
    assert "Permission denied" in refusal(put(tmp_path / "x", RECORDING))


def test_what_no_page_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST_BYTES", 100)
    assert "more than" in refusal(put(tmp_path / "x", RECORDING))


def test_a_run_of_what_is_no_recording_cannot_be_asked_for(tmp_path: Path) -> None:
    assert "--run has no effect" in refusal(put(tmp_path / "x", SPEED), 1)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("begun", "asked", "experiments", 0, "lanes"), ["nobody"], "main has an unknown lane"),
        (("begun", "asked", "experiments", 0, "data_set"), "none", "main has an unknown data set"),
        (("begun", "asked", "experiments", 0, "lengths"), [], "main has no length"),
        (("blocks", 0, "experiment"), 99, "a block has an unknown experiment"),
        (("blocks", 0, "turns", 0, "at"), [], "the figures of a turn do not match the lengths of its experiment"),
    ],
)
def test_a_report_whose_parts_do_not_belong_together_is_refused(
    tmp_path: Path, place: tuple[str | int, ...], value: object, reason: str
) -> None:
    report = json.loads(paper_bytes())
    *way, last = place
    functools.reduce(operator.getitem, way, report)[last] = value
    put(tmp_path / "report.json", json.dumps(report).encode())
    assert reason in refusal(tmp_path)


def numbers_of(value: object, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each number in decoded JSON."""
    match value:
        case dict():
            for key, further in value.items():
                yield from numbers_of(further, (*way, key))
        case list():
            for place, further in enumerate(value):
                yield from numbers_of(further, (*way, place))
        case bool():
            pass
        case int() | float():
            yield way


@pytest.mark.parametrize("content", [SPEED, paper_bytes()], ids=["speed", "paper"])
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_a_benchmark_with_any_number_beyond_its_range_is_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    report = json.loads(content)
    *way, last = data.draw(st.sampled_from(list(numbers_of(report))))
    number = data.draw(st.sampled_from([10**400, -(10**400), 1e308, 2**65]))
    functools.reduce(operator.getitem, way, report)[last] = number
    assert len(refusal(put(tmp_path_factory.mktemp("any") / "report.json", json.dumps(report).encode()))) < 1000
