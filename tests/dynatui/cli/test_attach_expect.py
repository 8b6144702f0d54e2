"""Tests of `dynatui attach --expect`: exit codes, the cause on standard error and in JSON, and refusals in one line."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dynatui import main as cli
from dynatui.record.reader import server_events
from dynatui.servers.attach.events import Findings, Promise
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.profile_file import write_profile
from tests.dynatui.servers.attach.page_server import PageServer, serving, text
from tests.dynatui.servers.attach.stand_in import OTHER, RATES, StandIn, profile, promised_draft, vllm

OFTEN = ("--interval", "0.1", "--headless")
Ran: TypeAlias = Callable[..., tuple[int, list[dict[str, Any]], list[str]]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """From arguments to exit code, JSON lines, and the lines on standard error."""
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)

    def run(*arguments: str) -> tuple[int, list[dict[str, Any]], list[str]]:
        code = cli.main(["attach", *arguments, *OFTEN])
        told, said = capsys.readouterr()
        lines = [line.removeprefix("dynatui: ") for line in said.splitlines()]
        return code, [json.loads(line) for line in told.splitlines()], lines

    return run


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    write_profile(path, profile(small=promised_draft(RATES), tiny=promised_draft(OTHER)))
    return path


@pytest.fixture
def pages() -> Iterator[PageServer]:
    with serving() as found:
        yield found


def working(pages: PageServer, server: StandIn, rounds: int = 400, *, drafting: bool = True) -> str:
    """Lets the stand-in work between polls; returns the URL."""

    def answer(handler: Any) -> None:
        (server.serve if drafting else server.write)(rounds)
        text(server.page())(handler)

    pages.answer = answer
    return pages.url


def test_a_kept_promise_is_exit_code_0_and_said_with_its_figures(pages: PageServer, mine: Path, ran: Ran) -> None:
    url = working(pages, vllm())
    code, lines, said = ran(url, "--expect", str(mine), "--deployed", "small", "--draft-tokens", "5", "--polls", "6")
    assert code == 0
    assert said[-1] == "the promise of mine.json, draft small is kept: L-bar 3.56 in 2,000 rounds, promised 3.56"
    assert [line["type"] for line in lines[:3]] == ["attach", "server", "promise"]
    assert (lines[-1]["type"], lines[-1]["kept"], lines[-1]["findings"]) == ("findings", True, [])


def test_a_broken_promise_is_exit_code_5_with_its_cause_also_in_the_recording(
    pages: PageServer, mine: Path, ran: Ran, tmp_path: Path
) -> None:
    url, path = working(pages, vllm(OTHER)), tmp_path / "server.jsonl"
    code, lines, said = ran(url, "--expect", str(mine), "--deployed", "small", "--polls", "8", "--record", str(path))
    assert code == 5
    assert (lines[-1]["kept"], [each["cause"] for each in lines[-1]["findings"]]) == (False, ["below"])
    assert said[-1].startswith(
        "the promise is not kept: acceptance is below the promise: 50% at position 1 (promised 75%)"
    )
    assert "the rates are those of tiny" in said[-1]
    assert sum("acceptance is below" in line for line in said) == 2, "when it is found, and at the end"
    recorded = list(server_events(path))
    assert isinstance(recorded[2], Promise)
    assert isinstance(recorded[-1], Findings)
    assert recorded[-1].findings[0].cause == "below"


@pytest.mark.parametrize(
    ("server", "further", "cause"),
    [
        (vllm((*RATES, 0.28, 0.24, 0.2)), ("--draft-tokens", "5"), "length"),
        (vllm((0.0, 0.0, 0.0, 0.0, 0.0)), (), "broken"),
        (StandIn(KINDS["llamacpp"]), ("--draft-tokens", "5"), "off"),
    ],
    ids=["K + 3", "broken weights", "a draft that is only loaded"],
)
def test_what_is_deployed_wrongly_is_named(
    pages: PageServer, mine: Path, ran: Ran, server: StandIn, further: tuple[str, ...], cause: str
) -> None:
    url = working(pages, server, drafting=cause != "off")
    code, lines, _ = ran(url, "--expect", str(mine), "--deployed", "small", *further, "--polls", "6")
    assert (code, [each["cause"] for each in lines[-1]["findings"]]) == (5, [cause])


def test_a_recording_without_drafts_tells_that_drafts_cost_more_than_they_bring(
    pages: PageServer, mine: Path, ran: Ran, tmp_path: Path
) -> None:
    plain, spec = vllm(), vllm()
    plain.step_s, spec.step_s = 0.005, 0.02
    baseline = str(tmp_path / "plain.jsonl")
    assert ran(working(pages, plain, drafting=False), "--polls", "4", "--record", baseline)[0] == 0
    expected = ("--expect", str(mine), "--deployed", "small", "--baseline", baseline, "--polls", "24")
    code, lines, _ = ran(working(pages, spec), *expected)
    assert code == 5
    (found,) = lines[-1]["findings"]
    assert found["cause"] == "slow"
    assert "break-even is L-bar 4.00" in found["claim"]


def test_a_server_that_does_not_answer_or_serves_nobody_leaves_it_unchecked_with_exit_code_5(
    pages: PageServer, mine: Path, ran: Ran
) -> None:
    expected = ("--expect", str(mine), "--deployed", "small", "--polls", "2")
    for url, why in (("127.0.0.1:9", "cannot reach 127.0.0.1:9"), (working(pages, vllm(), 3), "3 rounds were drafted")):
        code, lines, said = ran(url, *expected)
        assert code == 5
        assert said[-1].startswith("the promise was not checked: ")
        assert why in said[-1]
        assert (lines[-1]["kept"], lines[-1]["findings"][0]["cause"]) == (None, "unchecked")
    pages.answer = text("up 1\n")
    code, _, said = ran(pages.url, *expected)
    assert code == 5
    assert "do not belong to a supported server" in said[-1]


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        ("{", (), "mine.json is no profile"),
        ("", (), "mine.json is no profile"),
        ('{"schema": 9}', (), "is a profile of schema 9"),
        (None, ("--deployed", "small"), "cannot read"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(
    tmp_path: Path, ran: Ran, content: str | None, options: tuple[str, ...], why: str
) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content)
    code, lines, said = ran("host:1", "--expect", str(path), *options)
    assert (code, lines, len(said)) == (2, [], 1)
    assert why in said[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--deployed", "small"), "--deployed is given without --expect"),
        (("--draft-tokens", "5"), "--draft-tokens is given without --expect"),
        (("--expect", "MINE"), "has several drafts; name the server's with --deployed NAME: small, tiny"),
        (("--expect", "MINE", "--deployed", "x"), "give one of the profile's drafts: small, tiny"),
        (("--expect", "MINE", "--deployed", "small", "--draft-tokens", "x"), "--draft-tokens is 'x'"),
        (("--expect", "MINE", "--deployed", "small", "--baseline", "MINE"), "mine.json: line 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    mine: Path, ran: Ran, options: tuple[str, ...], why: str
) -> None:
    code, _, said = ran("host:1", *(str(mine) if word == "MINE" else word for word in options))
    assert (code, len(said)) == (2, 1)
    assert why in said[0]
