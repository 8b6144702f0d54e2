"""Tests of `dynatui attach` and the replay of its recordings: JSON lines, notes, signals, pipes and bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dynatui import main as cli
from dynatui.cli import attach
from dynatui.record.reader import server_events
from dynatui.servers.attach.events import Answer, Event
from dynatui.sources.server import ServerSource, played
from tests.dynatui.pty_terminal import written
from tests.dynatui.servers.attach.page_server import PageServer, by_path, page, raw, serving, text
from tests.dynatui.servers.attach.scripted_session import reading, session, wasting

ROOT = Path(__file__).parents[3]
TOKEN = "DYNATUI_ATTACH_TOKEN"  # noqa: S105 - name of an environment variable
SECRET = "sk-nobody-may-see-this"  # noqa: S105 - not a real key
PATIENCE_S = 60.0
SOON_S = 5.0
OFTEN = ("--interval", "0.1")


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving(text(page("vllm-1"))) as found:
        yield found


@contextmanager
def started(
    *arguments: str, lines: int = 1, program: Sequence[str] = ("-m", "dynatui"), secret: str = ""
) -> Iterator["subprocess.Popen[str]"]:
    """Starts the program and waits for lines that it prints."""
    with subprocess.Popen(
        [sys.executable, *program, "attach", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DYNATUI_CONFIG": os.devnull, TOKEN: secret},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        for _ in range(lines):
            printed(running)
        yield running


def printed(running: "subprocess.Popen[str]") -> dict[str, Any]:
    assert running.stdout is not None
    line: dict[str, Any] = json.loads(running.stdout.readline())
    return line


Ran: TypeAlias = Callable[..., tuple[int, list[dict[str, Any]], str]]
"""Function from arguments and environment variables to exit code, JSON lines and the text on standard error."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs the command to its end in this process."""
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)

    def run(*arguments: str, **environment: str) -> tuple[int, list[dict[str, Any]], str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = cli.main([*arguments])
        told, said = capsys.readouterr()
        return code, [json.loads(line) for line in told.splitlines()], said

    return run


def test_each_reading_is_a_line_of_json_and_a_server_that_goes_away_is_noted_once(server: PageServer, ran: Ran) -> None:
    code, lines, said = ran("attach", server.url, "--polls", "3", *OFTEN)
    assert code == 0
    assert [line["type"] for line in lines] == ["attach", "server", "reading", "reading", "reading"]
    assert lines[1]["kind"] == "vllm"
    assert lines[-1]["session"]["drafts"] == 0
    assert said.splitlines()[0].startswith(f"dynatui: vLLM at {server.url}/metrics meta-llama")
    answers = iter(["vllm-1", None, None, "vllm-2", "vllm-2"])

    def answer(handler: Any) -> None:
        name = next(answers)
        (text(page(name)) if name else text("", 503))(handler)

    server.answer = answer
    code, lines, said = ran("attach", server.url, "--polls", "5", *OFTEN)
    assert code == 0
    assert [line["type"] for line in lines[2:]] == ["reading", "gap", "gap", "reading", "reading"]
    assert lines[5]["interval"]["drafts"] == 100
    notes = said.splitlines()[1:]
    assert notes == [
        f"dynatui: 127.0.0.1:{server.port} answers 503 Service Unavailable to /metrics; trying again",
        "dynatui: the server answers again",
    ]


def test_what_is_printed_is_a_recording_and_what_is_recorded_is_printed_again(
    server: PageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], ran: Ran
) -> None:
    path = tmp_path / "server.jsonl"
    _, lines, _ = ran("attach", server.url, "--polls", "2", *OFTEN, "--record", str(path))
    assert len(list(server_events(path))) == len(lines) == 4
    assert cli.main(["replay", str(path)]) == 0
    printed = capsys.readouterr().out
    assert [json.loads(line) for line in printed.splitlines()] == lines
    copy = tmp_path / "copy.jsonl"
    copy.write_text(printed)
    assert list(server_events(copy)) == list(server_events(path))


def at_once(*recorded: Event) -> ServerSource:
    return ServerSource(played(recorded, speed=1e9), live=False)


def test_wasted_drafts_are_a_field_of_readings_and_noted_at_begin_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert attach._printed(at_once(*wasting(30), reading(31.0), reading(32.0))) == 0
    told, said = capsys.readouterr()
    fields = [json.loads(line).get("wasted") for line in told.splitlines()]
    assert [bool(field) for field in fields[-13:]] == [*[True] * 11, False, False]
    assert fields[-3]["acceptance_rate"] == pytest.approx(0.03, abs=1e-3)
    assert [line for line in said.splitlines() if "drafts" in line] == [
        "dynatui: drafts wasted for 19 s: 3% of 14,640 drafted tokens accepted, 1.09 tokens a round, so at most 1.09 "
        "times as fast as without drafts, even if they cost nothing; decoding is likely slower",
        "dynatui: drafts are accepted again",
    ]
    attach._printed(at_once(*wasting(30), reading(31.0, restarted=True)))
    said = capsys.readouterr().err
    assert "the server has restarted" in said
    assert "accepted again" not in said


def test_a_token_is_sent_and_neither_shown_nor_recorded(server: PageServer, tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "server.jsonl"
    server.answer = text(page("vllm-1").replace("meta-llama", SECRET))
    arguments = ("attach", f"{server.url}?key={SECRET}", "--polls", "2", *OFTEN, "--record", str(path))
    code, lines, said = ran(*arguments, **{TOKEN: SECRET})
    assert code == 0
    assert server.requests[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in json.dumps(lines) + said + path.read_text()


def ended_soon(running: "subprocess.Popen[str]", number: signal.Signals = signal.SIGINT) -> str:
    """What the program says from a signal on, which must end it soon, as an interruption."""
    began = time.monotonic()
    running.send_signal(number)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, "Traceback" in said) == (130, False)
    assert time.monotonic() - began < SOON_S
    return said


def test_a_signal_ends_it_soon_with_a_whole_recording_and_a_reader_that_leaves_quietly(
    server: PageServer, tmp_path: Path
) -> None:
    paths = {number: tmp_path / f"{number}.jsonl" for number in (signal.SIGINT, signal.SIGHUP)}
    with ExitStack() as running, started(server.url, *OFTEN, lines=0) as left:
        runs = [
            running.enter_context(started(server.url, *OFTEN, "--record", str(path), lines=0))
            for path in paths.values()
        ]
        for run, number in zip(runs, paths, strict=True):
            for _ in range(4):
                printed(run)
            assert ended_soon(run, number).splitlines()[-1] == "dynatui: interrupted"
        printed(left)
        assert left.stdout is not None
        assert left.stderr is not None
        left.stdout.close()
        assert left.wait(PATIENCE_S) == 0
        assert "Traceback" not in left.stderr.read()
    assert all(len(list(server_events(path))) >= 3 for path in paths.values())


SLOW_NAMES = """
import socket, sys, time
from dynatui.cli import attach
from dynatui import main as cli
def getaddrinfo(*_, **__):
    time.sleep(60)
    return []
socket.getaddrinfo = getaddrinfo
sys.exit(cli.main(sys.argv[1:]))
"""
"""The program with a name resolver that does not answer for a minute."""


def test_a_signal_ends_it_though_nothing_answers_or_a_name_is_looked_up(server: PageServer) -> None:
    server.answer = lambda _: time.sleep(2.0)
    named, program = "http://host.invalid:8000", ("-c", SLOW_NAMES)
    with (
        started(server.url) as silent,
        started(named, program=program) as seeking,
        started(named, "--prompt", "Hello", program=program) as asking,
    ):
        time.sleep(0.5)
        for run in (silent, seeking, asking):
            ended_soon(run)


def test_a_signal_ends_it_though_nobody_reads_it(server: PageServer, tmp_path: Path) -> None:
    numbers = count()

    def talkative(handler: Any) -> None:
        names = (f"m{next(numbers)}-{'x' * 1000}" for _ in range(32))
        told = "".join(f'vllm:generation_tokens_total{{model_name="{name}"}} 1.0\n' for name in names)
        text(told)(handler)

    server.answer = talkative
    path = tmp_path / "server.jsonl"
    with started(server.url, *OFTEN, "--record", str(path), lines=0) as running:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not (path.exists() and path.stat().st_size > 2**18):
            time.sleep(0.05)  # until the recording is far larger than the buffer of a pipe
        began = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert (running.wait(PATIENCE_S), time.monotonic() - began < SOON_S) == (130, True)
    assert list(server_events(path))


def completing(server: PageServer, answer: Callable[[Any], None]) -> None:
    """Lets the server have metrics, a model, and this answer to a request."""
    models = text('{"data": [{"id": "big"}]}')
    server.answer = by_path({"/metrics": text(page("vllm-1")), "/v1/models": models, "/v1/completions": answer})


def test_a_request_is_sent_once_and_its_rounds_are_told(server: PageServer, tmp_path: Path) -> None:
    step = {"per_step_accepted": [2, 0], "per_step_drafted": [3, 3]}
    told = {"usage": {"completion_tokens": 4}, "metrics": {"speculative_decoding": step}}
    completing(server, text(json.dumps({"choices": [{"text": "there"}], **told})))
    path = tmp_path / "server.jsonl"
    arguments = (server.url, "--prompt", "Hello", "--max-new-tokens", "4", *OFTEN, "--record", str(path))
    with started(*arguments, lines=0, secret=SECRET) as running:
        lines = [printed(running)]
        while lines[-1]["type"] != "answer":
            lines.append(printed(running))
        said = ended_soon(running)
    (asked,) = [line for line in lines if line["type"] == "request"]
    assert (asked["prompt"], asked["max_new_tokens"]) == ("Hello", 4)
    assert (lines[-1]["accepted_by_round"], lines[-1]["text"], lines[-1]["tokens_per_round"]) == ([2, 0], "there", 2.0)
    ((_, headers, sent),) = [each for each in server.requests if each[0] == "/v1/completions"]
    assert json.loads(sent) == {"model": "big", "prompt": "Hello", "max_tokens": 4, "temperature": 0}
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in path.read_text() + said
    assert any(isinstance(event, Answer) for event in server_events(path))


def test_a_session_of_one_reading_waits_for_the_answer_to_its_request(server: PageServer, ran: Ran) -> None:
    def answer(handler: Any) -> None:
        time.sleep(0.3)
        text('{"choices": [{"text": "there"}]}')(handler)

    completing(server, answer)
    code, lines, _ = ran("attach", server.url, "--polls", "1", *OFTEN, "--prompt", "Hello")
    assert code == 0
    assert (lines[-1]["type"], lines[-1]["text"]) == ("answer", "there")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            text('{"error": {"message": "the prompt is too long"}}', 400),
            "answers 400 Bad Request to /v1/completions: 'the prompt is too long'",
        ),
        (raw(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"choices": ['), "does not respond as an HTTP server"),
    ],
    ids=["refused", "broken off"],
)
def test_why_a_request_fails_is_told_and_the_server_watched_on(
    server: PageServer, ran: Ran, answer: Callable[[Any], None], error: str
) -> None:
    completing(server, answer)
    code, lines, said = ran("attach", server.url, "--polls", "3", "--interval", "0.3", "--prompt", "Hello")
    (told,) = [line for line in lines if line["type"] == "answer"]
    assert error in told["error"]
    assert (code, [line["type"] for line in lines].count("reading"), "Traceback" in said) == (0, 3, False)


def test_certificates_that_cannot_be_read_and_a_full_disk_are_one_line(server: PageServer, ran: Ran) -> None:
    code, _, said = ran("attach", server.url, "--record", "/dev/full")
    assert code == 2
    assert "cannot write /dev/full: No space left on device" in said
    assert "Traceback" not in said
    code, _, said = ran("attach", server.url, "--prompt", "Hello", SSL_CERT_FILE="/nowhere")
    assert (code, said.count("\n"), "SSL_CERT_FILE" in said) == (2, 1, True)


def test_a_file_of_something_else_is_not_touched(tmp_path: Path, ran: Ran) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    code, _, said = ran("attach", "host:8000", "--record", str(tmp_path / "notes.txt"))
    assert (code, (tmp_path / "notes.txt").read_text()) == (2, "mine\n")
    assert "is not a recording of a server, so it is not changed" in said


def test_a_server_that_is_not_there_is_waited_for_and_an_unencrypted_token_is_said_to_be(ran: Ran) -> None:
    with serving() as gone:
        port = gone.port
    code, lines, said = ran("attach", f"localhost:{port}", "--polls", "2", *OFTEN)
    assert (code, [line["type"] for line in lines]) == (0, ["attach", "gap", "gap"])
    assert said.count("\n") == 1
    assert f"cannot reach localhost:{port}" in said
    assert "trying again" in said
    arguments = ("attach", "http://no-such-host.invalid:8000", "--polls", "1")
    _, _, said = ran(*arguments, **{TOKEN: SECRET})
    assert "the token is sent to http://no-such-host.invalid:8000 unencrypted" in said
    assert SECRET not in said


@pytest.mark.parametrize("command", [["why"], ["--follow"], ["replay", "same"]])
def test_commands_for_runs_say_what_a_recording_of_a_server_is(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.jsonl"
    written(path, session(3))
    assert cli.main([str(path) if word == "same" else word for word in command] + [str(path)]) == 2
    assert "show it with dynatui replay FILE" in capsys.readouterr().err
