"""The metrics served during a real run are the figures that the run prints."""

import io
import json
import re
from collections.abc import Iterator

import pytest

from decoder.events import Event
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.cli import headless
from dynatui.record.transcript import Transcript
from dynatui.session import Session
from dynatui.sources.engine import Loaded, Report, load_engine
from tests.dynatui.prometheus.scraping import answer, by_method

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
