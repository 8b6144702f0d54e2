"""Tests of --metrics-port: totals are served during a run and are its figures; unusable ports are refused before it."""

import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoder.events import Event
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui import main as cli
from dynatui.cli import headless, ranks
from dynatui.record.transcript import Transcript
from dynatui.session import Session
from dynatui.sources.engine import Loaded, Report, load_engine
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine
from tests.dynatui.prometheus.scraping import answer, by_method, generated

HEADLESS = ("--headless", "--methods", "dynatree,ar", "--prompt", "one", "--prompt", "two")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken_is_refused_before_models_are_loaded_and_files_made(
    engine: FakeEngine, taken: int, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(*HEADLESS, "--metrics-port", str(taken), "--record", str(tmp_path / "run.jsonl"))
    assert line == (
        f"metrics_port is {taken}, which cannot be opened: another program uses it; "
        "give another port, or 0 for any free port"
    )
    monkeypatch.setenv("DYNATUI_METRICS_PORT", str(taken))
    assert refused(*HEADLESS).endswith("(metrics_port from DYNATUI_METRICS_PORT)")
    assert not engine.pairs
    assert not (tmp_path / "run.jsonl").exists()


def test_of_several_ranks_the_leader_alone_serves(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    class FollowsError(Exception):
        """Raised where a follower would start to follow."""

    def follow(_: object) -> None:
        raise FollowsError

    monkeypatch.setattr(ranks, "join", follow)
    with pytest.raises(FollowsError):
        cli.main([*HEADLESS, "--metrics-port", str(taken)])


def test_a_run_without_a_screen_says_where_it_serves_and_counts_over_all_prompts(
    capsys: pytest.CaptureFixture[str], engine: FakeEngine
) -> None:
    said, pages = list[str](), list[bytes]()

    def url() -> str:
        said.append(capsys.readouterr().err)
        (found,) = re.findall(r"^metrics at (http://127\.0\.0\.1:\d+/metrics)$", "".join(said), re.MULTILINE)
        return str(found)

    def scrape(number: int, _steering: Steering) -> None:
        if number % 4 == 0:
            pages.append(answer(url()).page)

    engine.before_event = scrape
    assert cli.main([*HEADLESS, "--metrics-port", "0"]) == 0
    counts = [generated(page).get("dynatree", 0.0) for page in pages]
    assert counts == sorted(counts)
    assert counts[-1] == 16
    with pytest.raises(ConnectionRefusedError):
        answer(url())


METHODS = ("dynatree", "auto", "ar", "linear", "alg1", "hf")
LATENCIES = ("time_to_first_token", "inter_token_latency")


def test_the_last_page_of_a_run_of_the_embedded_pair_has_its_figures() -> None:
    session = Session(
        ("It was late, and the house", "The captain looked"),
        config=RunConfig(methods=METHODS, max_new_tokens=12),
        metrics_port=0,
    )
    out, err, pages = io.StringIO(), io.StringIO(), list[bytes]()

    def load(report: Report, progress: Report) -> Loaded:
        decode = load_engine(session)(report, progress).decode

        def scraped(prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
            yield from decode(prompt, config, steering)
            (url,) = re.findall(r"^metrics at (\S+)$", err.getvalue(), re.MULTILINE)
            pages.append(answer(url).page)

        return Loaded(scraped)

    assert headless.run(session, Transcript(out, err, as_json=True), load) == 0
    results = [json.loads(line)["methods"] for line in out.getvalue().splitlines()]

    def summed(figure: str, methods: tuple[str, ...] = METHODS) -> dict[str, float]:
        return {name: sum(result[name][figure] for result in results) for name in methods}

    page, told = pages[-1], METHODS[:-1]  # hf does not report drafted tokens
    assert by_method(page, "vllm:generation_tokens_total") == summed("committed")
    assert by_method(page, "vllm:spec_decode_num_draft_tokens_total") == summed("drafted", told)
    assert by_method(page, "vllm:spec_decode_num_accepted_tokens_total") == summed("accepted", told)
    by_position = by_method(page, "vllm:spec_decode_num_accepted_tokens_per_pos_total")
    assert by_position == {name: count for name, count in summed("accepted", told).items() if name != "ar"}
    first, later = (by_method(page, f"vllm:{name}_seconds_count") for name in LATENCIES)
    assert {name: first[name] + later[name] for name in first} == summed("rounds")
    assert first == dict.fromkeys(METHODS, 2)
    first_s, later_s = (by_method(page, f"vllm:{name}_seconds_sum") for name in LATENCIES)
    assert first_s == pytest.approx(summed("ttft_s"))
    prefill_s, decode_s = summed("prefill_s"), summed("decode_s")
    assert {name: first_s[name] + later_s[name] for name in METHODS} == pytest.approx(
        {name: prefill_s[name] + decode_s[name] for name in METHODS}
    )
