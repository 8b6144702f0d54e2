"""Figures of each server, computed from two pages one second apart, compared with manual counts."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from dynatui.attach.events import Drafting, Figures, Reading, Server
from dynatui.attach.exposition import lines_of
from dynatui.attach.servers import KINDS, Kind, recognised
from tests.dynatui.attach.page_server import page
from tests.dynatui.attach.pages_read import known, readings, told

SECONDS = 2.0


def figures(*names: str) -> tuple[Figures, Figures]:
    """Figures of the last interval and of the session."""
    last = readings(*map(page, names), apart_s=SECONDS)[-1]
    return last.interval, last.session


@pytest.mark.parametrize("name", KINDS)
def test_every_server_is_recognised_by_its_page_and_told_once_with_its_models(name: str) -> None:
    server, *others = told(page(f"{name}-1"), page(f"{name}-2"), page(f"{name}-2"))
    assert isinstance(server, Server)
    assert server.kind == name
    assert [type(event) for event in others] == [Reading] * 3
    assert name != "vllm" or server.models == ["meta-llama/Llama-3.1-8B-Instruct"]


def test_vllm() -> None:
    interval, session = figures("vllm-1", "vllm-2")
    assert interval == session
    assert (interval.drafts, interval.drafted, interval.accepted, interval.generated) == (100, 300, 170, 270)
    assert interval.tokens_per_round == pytest.approx(2.7)
    assert interval.acceptance_rate == pytest.approx(170 / 300)
    assert interval.acceptance_by_position == pytest.approx([0.80, 0.55, 0.35])
    assert (interval.drafted_per_second, interval.accepted_per_second, interval.tokens_per_second) == (150, 85, 135)


def test_llama_cpp() -> None:
    interval, _ = figures("llamacpp-1", "llamacpp-2")
    assert (interval.drafts, interval.drafted, interval.accepted, interval.generated) == (10, 30, 20, 30)
    assert interval.tokens_per_round == pytest.approx(3.0)
    assert interval.acceptance_by_position == pytest.approx([0.9, 0.7, 0.4])


def test_sglang_shows_gauges_now_and_counts_the_session() -> None:
    interval, session = figures("sglang-1", "sglang-2")
    assert (interval.tokens_per_round, interval.acceptance_rate, interval.tokens_per_second) == (2.6, 0.54, 388.0)
    assert (session.drafts, session.generated) == (200, 520)
    assert session.tokens_per_round == pytest.approx(2.6)
    assert session.tokens_per_second == pytest.approx(520 / SECONDS)


def test_what_sglang_drafted_and_accepted_follows_from_its_rounds_and_the_size_of_its_drafts() -> None:
    interval, session = figures("sglang-1", "sglang-2")
    assert (session.drafted, session.accepted) == (200 * 3, 520 - 200)
    assert session.acceptance_rate == pytest.approx(320 / 600)
    assert (interval.drafted_per_second, interval.accepted_per_second) == (300, 160)
    assert interval.acceptance_rate == 0.54


def sglang(*pages: str) -> list[Reading]:
    return readings(*pages, kind="sglang")


def test_how_sglang_drafts_is_told_and_what_is_0_is_not() -> None:
    name, plain = "sglang-dspark-1", Drafting(steps=3, draft_tokens=4)
    assert sglang(page("sglang-1"))[-1].drafting == plain
    capped = Drafting(steps=5, draft_tokens=6, cap_length=4.4, block_accept_length=3.6)
    assert sglang(page(name))[-1].drafting == capped
    idle = page(name).replace("5.0", "0.0").replace("6.0", "0.0").replace("4.4", "0.0")
    assert sglang(idle)[-1].drafting == Drafting(block_accept_length=3.6)


def sized(name: str, tokens: int) -> str:
    """A page of SGLang with rounds that verify `tokens` tokens."""
    return page(name).replace("} 4.0", f"}} {tokens}.0")


def test_where_the_size_of_drafts_changes_between_two_pages_nobody_knows_how_many_there_were() -> None:
    _, last = sglang(page("sglang-1"), sized("sglang-2", 6))
    assert (last.interval.drafts, last.interval.drafted, last.interval.accepted) == (200, None, None)
    _, steady, again = sglang(sized("sglang-1", 6), sized("sglang-2", 6), sized("sglang-2", 6))
    assert (steady.interval.drafted, again.session.drafted) == (200 * 5, 200 * 5)


def test_where_sglang_tells_no_size_the_steps_are_what_a_round_drafts() -> None:
    _, last = sglang(sized("sglang-1", 0), sized("sglang-2", 0))
    assert last.interval.drafted == 200 * 3
    bare = [page(name).replace("sglang:spec_num_", "sglang:other_") for name in ("sglang-1", "sglang-2")]
    assert (sglang(*bare)[-1].interval.drafted, sglang(*bare)[-1].drafting) == (None, None)


def test_engines_that_draft_differently_have_no_common_size() -> None:
    both = page("sglang-1") + 'sglang:spec_num_draft_tokens{dp_rank="1",model_name="m",tp_rank="0"} 9.0\n'
    assert sglang(both)[-1].drafting == Drafting(steps=3)


def test_sglang_never_accepts_more_than_it_drafts_nor_less_than_nothing() -> None:
    first, lots = page("sglang-1"), page("sglang-2").replace("} 6520.0", "} 9999.0")
    assert sglang(first, lots)[-1].interval.accepted == 600
    few = page("sglang-2").replace("} 6520.0", "} 6100.0")
    assert sglang(first, few)[-1].interval.accepted == 0


def test_processes_of_one_sglang_engine_count_once_and_engines_each() -> None:
    ranks = "".join(
        f'sglang:gen_throughput{{dp_rank="{engine}",model_name="m",tp_rank="{rank}"}} {100.0 + engine}\n'
        for engine in range(2)
        for rank in range(4)
    )
    assert sglang(ranks)[-1].interval.tokens_per_second == 201.0


def test_a_tensorrt_llm_that_shows_the_drafts_of_the_moment_alone_counts_none() -> None:
    name = "trtllm_spec_decode_num_draft_tokens"
    pages = (f"# TYPE {name} gauge\n{name} {now}\n" for now in (40, 10, 30))
    *_, reading = readings(*pages, kind="tensorrt_llm")
    assert (reading.restarted, reading.interval.drafted, reading.session.drafted) == (False, None, None)


def test_drafts_of_varying_length_are_accepted_as_often_as_the_tokens_that_were_drafted_there() -> None:
    def positions(metric: str, counts: tuple[int, ...]) -> str:
        lines = (f'trtllm_spec_decode_{metric}_total{{token_position="{i}"}} {n}' for i, n in enumerate(counts))
        return "".join(f"{line}\n" for line in lines)

    nothing = positions("drafted_tokens", (0, 0, 0)) + positions("accepted_tokens", (0, 0, 0))
    some = positions("drafted_tokens", (100, 40, 0)) + positions("accepted_tokens", (80, 30, 0))
    more = positions("drafted_tokens", (200, 50, 10)) + positions("accepted_tokens", (140, 39, 8))
    _, first, second = readings(nothing, some, more, kind="tensorrt_llm")
    assert first.interval.acceptance_by_position == [0.8, 0.75, None]
    assert second.interval.acceptance_by_position == [0.6, 0.9, 0.8]
    assert second.session.acceptance_by_position == [0.7, 0.78, 0.8]


def test_tensorrt_llm_shows_its_gauge_now_and_counts_the_session_by_positions() -> None:
    interval, session = figures("tensorrt_llm-1", "tensorrt_llm-2")
    assert interval.tokens_per_round == 2.4
    assert (session.drafts, session.drafted, session.accepted, session.generated) == (50, 240, 120, 130)
    assert session.tokens_per_round == pytest.approx(1 + 75 / 50)
    assert session.acceptance_rate == pytest.approx(0.5)
    assert session.acceptance_by_position == pytest.approx([0.8, 0.5, 0.2])


def test_tgi() -> None:
    interval, _ = figures("tgi-1", "tgi-2")
    assert (interval.drafts, interval.accepted, interval.generated) == (100, 60, 160)
    assert interval.tokens_per_round == pytest.approx(1.6)
    assert (interval.drafted, interval.acceptance_rate) == (None, None)


def test_the_first_page_tells_no_differences() -> None:
    interval, session = figures("vllm-1")
    assert (interval.seconds, session.seconds) == (0.0, 0.0)
    assert (interval.drafts, interval.tokens_per_round, interval.tokens_per_second) == (None, None, None)


@pytest.mark.parametrize("name", ["vllm-plain", "llamacpp-plain"])
def test_without_speculative_decoding_tokens_are_counted_all_the_same(name: str) -> None:
    interval, _ = figures(name, name)
    assert (interval.generated, interval.tokens_per_second) == (0, 0.0)
    assert (interval.drafts, interval.drafted, interval.accepted, interval.tokens_per_round) == (None,) * 4
    assert interval.acceptance_by_position == []


def test_vllm_before_its_version_1_counts_no_drafts_so_its_length_is_unknown() -> None:
    interval, _ = figures("vllm-v0", "vllm-v0")
    assert (interval.drafted, interval.accepted, interval.drafts, interval.tokens_per_round) == (0, 0, None, None)


def test_an_idle_server_has_no_length_and_no_rate() -> None:
    interval, _ = figures("vllm-1", "vllm-1")
    assert (interval.drafts, interval.drafted) == (0, 0)
    assert (interval.tokens_per_round, interval.acceptance_rate) == (None, None)
    assert interval.acceptance_by_position == [None, None, None]


def test_a_gauge_of_0_is_none_yet() -> None:
    idle = page("sglang-1").replace("} 2.75", "} 0.0").replace("} 0.58", "} 0.0")
    (reading,) = readings(idle)
    assert (reading.interval.tokens_per_round, reading.interval.acceptance_rate) == (None, None)


def test_names_without_total_are_the_same_metrics() -> None:
    pages = (page(name).replace("_total{", "{") for name in ("vllm-1", "vllm-2"))
    assert readings(*pages, kind="vllm")[-1].interval.tokens_per_round == pytest.approx(2.7)


def renamed(kind: Kind, prefix: str, separator: str) -> Callable[[str], str]:
    """Function that gives a page of this kind the names that another exporter writes."""
    own = re.compile(rf"^((?:# \w+ )?){re.escape(kind.prefix)}", re.MULTILINE)
    return lambda text: own.sub(rf"\g<1>{prefix}{kind.prefix[:-1]}{separator}", text)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("prefix", ["", "ray_", "ray:", "prod_eu2:", "my_"])
@pytest.mark.parametrize("separator", [":", "_"])
def test_a_page_with_another_prefix_and_separator_has_the_same_figures(name: str, prefix: str, separator: str) -> None:
    pages = [page(f"{name}-{number}") for number in (1, 2)]
    assert told(*map(renamed(KINDS[name], prefix, separator), pages)) == told(*pages)


def test_a_page_that_has_the_counters_under_two_prefixes_counts_them_once() -> None:
    kind = KINDS["vllm"]
    twice = [page(name) + renamed(kind, "ray_", "_")(page(name)) for name in ("vllm-1", "vllm-2")]
    others = [renamed(kind, "a_", ":")(text) + renamed(kind, "b_", ":")(text) for text in twice]
    for pages in (twice, others):
        *_, reading = readings(*pages)
        assert (reading.interval.drafts, reading.interval.generated) == (100, 270)


def test_of_several_other_prefixes_the_most_frequent_one_counts() -> None:
    few = 'a_vllm_generation_tokens{model_name="m"} 5.0\nb_vllm_iteration_tokens_total 7.0\n'
    lines = known(few + renamed(KINDS["vllm"], "b_", "_")(page("vllm-1")))[1]
    assert 'a_vllm_generation_tokens{model_name="m"} 5.0' in lines
    assert any(line.startswith("vllm:spec_decode_num_drafts_total{") for line in lines)


def test_counters_that_ray_also_writes_as_gauges_are_counted() -> None:
    gauges = re.sub(r"^# TYPE (\S+)_total counter$", r"# TYPE \1 gauge\n\1 7.0", page("vllm-1"), flags=re.MULTILINE)
    pages = [renamed(KINDS["vllm"], "ray_", "_")(text) for text in (gauges + page("vllm-1"), page("vllm-2"))]
    assert readings(*pages)[-1].interval.drafts == 100


def test_a_metric_of_another_program_whose_name_contains_a_server_s_is_not_that_server() -> None:
    assert recognised(lines_of('router_vllm_requests_total{model_name="m"} 4.0\nxvllm_generation_tokens 4.0\n')) is None


def test_of_two_servers_on_a_page_the_one_that_drafts_is_watched() -> None:
    assert known(page("vllm-plain") + page("llamacpp-1"))[0] == KINDS["llamacpp"]


def test_a_page_that_only_announces_metrics_is_recognised() -> None:
    assert known("# HELP sglang:num_running_reqs Requests.\n")[0] == KINDS["sglang"]


def test_a_page_of_another_program_is_not() -> None:
    assert recognised(lines_of("# TYPE up gauge\nup 1\n")) is None


def exported(drafts: int, accepted: int, model: str) -> str:
    """A page written by prometheus_client, which vLLM, SGLang and TensorRT-LLM use."""
    registry = CollectorRegistry()
    for name, value in (("num_drafts", drafts), ("num_accepted_tokens", accepted), ("num_draft_tokens", 3 * drafts)):
        counter = Counter(f"vllm:spec_decode_{name}", "Some.", ["model_name", "engine"], registry=registry)
        counter.labels(model, "0").inc(value)
        counter.labels(model, "1").inc(value)
    return generate_latest(registry).decode()


@settings(deadline=None)
@given(st.text(max_size=40), st.integers(0, 10**9), st.integers(1, 10**6), st.data())
def test_what_an_exporter_writes_is_read_back_whatever_its_labels_hold(
    model: str, start: int, rounds: int, data: st.DataObject
) -> None:
    accepted = data.draw(st.integers(0, 3 * rounds))
    pages = exported(start, start, model), exported(start + rounds, start + accepted, model)
    server, _, reading = told(*pages, kind="vllm")
    assert isinstance(server, Server)
    assert isinstance(reading, Reading)
    assert server.models == ([model] if model else [])
    assert (reading.interval.drafts, reading.interval.accepted) == (2 * rounds, 2 * accepted)
    assert reading.interval.tokens_per_round == pytest.approx(1 + accepted / rounds)
