"""Figures of each server, computed from two pages one second apart, compared with manual counts."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from dynatui.servers.attach.events import Drafting, Figures, Load, Reading, Server
from dynatui.servers.attach.figures import lines_of
from dynatui.servers.attach.servers import KINDS, Kind, recognised
from tests.dynatui.servers.attach.page_server import page
from tests.dynatui.servers.attach.scripted_session import known, readings, told


@pytest.mark.parametrize("name", KINDS)
def test_every_server_is_recognised_by_its_page_and_told_once_with_its_models(name: str) -> None:
    server, *others = told(page(f"{name}-1"), page(f"{name}-2"), page(f"{name}-2"))
    assert isinstance(server, Server)
    assert server.kind == name
    assert [type(event) for event in others] == [Reading] * 3
    assert name != "vllm" or server.models == ["meta-llama/Llama-3.1-8B-Instruct"]


def row(found: Figures) -> str:
    """Rounds, drafted, accepted and generated tokens; tokens a round, acceptance, by position; tokens per second."""
    counts = (found.drafts, found.drafted, found.accepted, found.generated)
    shares = (found.tokens_per_round, found.acceptance_rate, *found.acceptance_by_position)
    rates = (found.drafted_per_second, found.accepted_per_second, found.tokens_per_second)
    parts = (("-" if figure is None else f"{figure:.3g}" for figure in part) for part in (counts, shares, rates))
    return f"{found.seconds:g} s: {' | '.join(' '.join(part) for part in parts)}"


@pytest.mark.parametrize(
    ("names", "interval", "session"),
    [
        ("vllm-1 vllm-2", "2 s: 100 300 170 270 | 2.7 0.567 0.8 0.55 0.35 | 150 85 135", ""),
        ("vllm-1", "0 s: - - - - | - - | - - -", ""),
        ("vllm-1 vllm-1", "2 s: 0 0 0 0 | - - - - - | 0 0 0", ""),
        ("vllm-plain vllm-plain", "2 s: - - - 0 | - - | - - 0", ""),
        ("vllm-v0 vllm-v0", "2 s: - 0 0 0 | - - | 0 0 0", ""),
        ("llamacpp-1 llamacpp-2", "2 s: 10 30 20 30 | 3 0.667 0.9 0.7 0.4 | 15 10 15", ""),
        ("llamacpp-plain llamacpp-plain", "2 s: - - - 0 | - - | - - 0", ""),
        # A gauge of SGLang or TensorRT-LLM tells the moment; the session is counted.
        (
            "sglang-1 sglang-2",
            "2 s: 200 600 320 520 | 2.6 0.54 | 300 160 388",
            "2 s: 200 600 320 520 | 2.6 0.533 | 300 160 260",
        ),
        (
            "tensorrt_llm-1 tensorrt_llm-2",
            "2 s: 50 240 120 130 | 2.4 0.5 0.8 0.5 0.2 | 120 60 65",
            "2 s: 50 240 120 130 | 2.5 0.5 0.8 0.5 0.2 | 120 60 65",
        ),
        ("tgi-1 tgi-2", "2 s: 100 - 60 160 | 1.6 - | - 30 80", ""),
    ],
)
def test_figures_of_two_pages_are_those_counted_by_hand(names: str, interval: str, session: str) -> None:
    last = readings(*map(page, names.split()), apart_s=2.0)[-1]
    assert (row(last.interval), row(last.session)) == (interval, session or interval)


@pytest.mark.parametrize(
    ("name", "load", "steps"),
    [
        ("vllm", Load(running=4, waiting=5, cache_usage=0.375), (40, 2.5 / 270, 0.025)),
        ("sglang", Load(running=2, waiting=3, cache_usage=0.13), (None, 0.01, None)),
        ("llamacpp", Load(running=1, waiting=2), (10, 0.02, None)),
        ("tensorrt_llm", Load(running=7, waiting=0, cache_usage=0.09), (None, 0.04, None)),
        ("tgi", Load(running=2, waiting=0), (None, 0.05, None)),
    ],
)
def test_load_steps_and_times_of_two_pages_are_those_counted_by_hand(
    name: str, load: Load, steps: tuple[float | None, ...]
) -> None:
    last = readings(page(f"{name}-1"), page(f"{name}-2"))[-1]
    assert last.load == load
    for found in (last.interval, last.session):
        assert (found.engine_steps, found.token_latency_s, found.step_s) == pytest.approx(steps)
    bare = readings(page("vllm-plain"), page("vllm-plain"))[-1]
    assert (bare.interval.engine_steps, bare.interval.token_latency_s) == (None, None)


def sglang(*pages: str) -> list[Reading]:
    return readings(*pages, kind="sglang")


def sized(tokens: int) -> tuple[str, str]:
    """Two pages of SGLang with rounds that verify `tokens` tokens."""
    first, second = (page(name).replace("} 4.0", f"}} {tokens}.0") for name in ("sglang-1", "sglang-2"))
    return first, second


def test_how_sglang_drafts_is_told_and_what_is_0_or_differs_between_engines_is_not() -> None:
    dspark, capped = page("sglang-dspark-1"), Drafting(steps=5, draft_tokens=6, cap_length=4.4, block_accept_length=3.6)
    idle = dspark.replace("5.0", "0.0").replace("6.0", "0.0").replace("4.4", "0.0")
    both = page("sglang-1") + 'sglang:spec_num_draft_tokens{dp_rank="1",model_name="m",tp_rank="0"} 9.0\n'
    found = [sglang(text)[-1].drafting for text in (page("sglang-1"), dspark, idle, both)]
    assert found == [Drafting(steps=3, draft_tokens=4), capped, Drafting(block_accept_length=3.6), Drafting(steps=3)]


def test_what_sglang_drafted_follows_from_the_size_of_its_drafts_or_its_steps_unless_they_change() -> None:
    _, last = sglang(page("sglang-1"), sized(6)[1])
    assert (last.interval.drafts, last.interval.drafted, last.interval.accepted) == (200, None, None)
    _, steady, again = sglang(*sized(6), sized(6)[1])
    assert (steady.interval.drafted, again.session.drafted) == (200 * 5, 200 * 5)
    assert sglang(*sized(0))[-1].interval.drafted == 200 * 3
    bare = [page(name).replace("sglang:spec_num_", "sglang:other_") for name in ("sglang-1", "sglang-2")]
    assert (sglang(*bare)[-1].interval.drafted, sglang(*bare)[-1].drafting) == (None, None)


def test_sglang_never_accepts_more_than_it_drafts_nor_less_than_nothing() -> None:
    pages = (page("sglang-2").replace("} 6520.0", f"}} {total}.0") for total in (9999, 6100))
    assert [sglang(page("sglang-1"), last)[-1].interval.accepted for last in pages] == [600, 0]


def test_processes_of_one_sglang_engine_count_once_engines_each_and_a_gauge_of_0_is_none_yet() -> None:
    ranks = "".join(
        f'sglang:gen_throughput{{dp_rank="{engine}",model_name="m",tp_rank="{rank}"}} {100.0 + engine}\n'
        for engine in range(2)
        for rank in range(4)
    )
    assert sglang(ranks)[-1].interval.tokens_per_second == 201.0
    (idle,) = sglang(page("sglang-1").replace("} 2.75", "} 0.0").replace("} 0.58", "} 0.0"))
    assert (idle.interval.tokens_per_round, idle.interval.acceptance_rate) == (None, None)


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


def test_counters_without_total_under_two_prefixes_or_also_as_gauges_of_ray_count_once() -> None:
    plain = (page(name).replace("_total{", "{") for name in ("vllm-1", "vllm-2"))
    assert readings(*plain, kind="vllm")[-1].interval.tokens_per_round == pytest.approx(2.7)
    kind = KINDS["vllm"]
    twice = [page(name) + renamed(kind, "ray_", "_")(page(name)) for name in ("vllm-1", "vllm-2")]
    others = [renamed(kind, "a_", ":")(text) + renamed(kind, "b_", ":")(text) for text in twice]
    for pages in (twice, others):
        *_, reading = readings(*pages)
        assert (reading.interval.drafts, reading.interval.generated) == (100, 270)
    gauges = re.sub(r"^# TYPE (\S+)_total counter$", r"# TYPE \1 gauge\n\1 7.0", page("vllm-1"), flags=re.MULTILINE)
    pages = [renamed(KINDS["vllm"], "ray_", "_")(text) for text in (gauges + page("vllm-1"), page("vllm-2"))]
    assert readings(*pages)[-1].interval.drafts == 100


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


def test_of_several_other_prefixes_the_most_frequent_one_counts() -> None:
    few = 'a_vllm_generation_tokens{model_name="m"} 5.0\nb_vllm_iteration_tokens_total 7.0\n'
    lines = known(few + renamed(KINDS["vllm"], "b_", "_")(page("vllm-1")))[1]
    assert 'a_vllm_generation_tokens{model_name="m"} 5.0' in lines
    assert any(line.startswith("vllm:spec_decode_num_drafts_total{") for line in lines)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('router_vllm_requests_total{model_name="m"} 4.0\nxvllm_generation_tokens 4.0\n', None),
        ("# TYPE up gauge\nup 1\n", None),
        ("# HELP sglang:num_running_reqs Requests.\n", "sglang"),
        (page("vllm-plain") + page("llamacpp-1"), "llamacpp"),
    ],
    ids=["nearly its names", "another program", "announced alone", "of two the one that drafts"],
)
def test_a_server_is_recognised_by_its_own_names(text: str, kind: str | None) -> None:
    found = recognised(lines_of(text))
    assert (found[0] if found else None) == (KINDS[kind] if kind else None)


def exported(drafts: int, accepted: int, model: str) -> str:
    registry = CollectorRegistry()
    for name, value in (("num_drafts", drafts), ("num_accepted_tokens", accepted), ("num_draft_tokens", 3 * drafts)):
        counter = Counter(f"vllm:spec_decode_{name}", "Some.", ["model_name", "engine"], registry=registry)
        counter.labels(model, "0").inc(value)
        counter.labels(model, "1").inc(value)
    return generate_latest(registry).decode()


@settings(max_examples=30)
@given(st.text(max_size=40), st.integers(0, 10**9), st.integers(1, 10**6), st.data())
def test_what_an_exporter_writes_is_read_back_with_any_label(
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
