"""Pages are parsed by name and labels; other answers of a server are one clear error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatui.servers.attach import figures
from dynatui.servers.attach.figures import NotMetricsError, Page, lines_of, parsed, require_metrics
from tests.dynatui.servers.attach.page_server import page

NAMES = ("vllm:generation_tokens", "vllm:spec_decode")


def test_metrics_come_by_name_without_total_and_by_labels() -> None:
    found = parsed(lines_of(page("vllm-1")), NAMES)
    drafts = found["vllm:spec_decode_num_drafts"]
    assert sorted(drafts.values()) == [1200.0, 4800.0]
    assert all(dict(labels)["model_name"] == "meta-llama/Llama-3.1-8B-Instruct" for labels in drafts)
    assert "vllm:num_requests_running" not in found


OPENMETRICS = """\
# HELP a Some.
# TYPE a counter
# UNIT a tokens
a_total{b="1"} 5.0 1763904000.5
a_total{b="2"} 6.0 # {trace_id="x y"} 1.0 1763904000.5
a_created{b="1"} 1763904000.5
# EOF
"""


@pytest.mark.parametrize(
    ("text", "counters"),
    [
        *((f"# TYPE {name} counter\n{name} 3\n", {"a": {(): 3.0}}) for name in ("a", "a_total")),
        ("a_created 1.7e9\na_total 2\n", {"a": {(): 2.0}}),
        *((f"a_total {value}\n", {}) for value in ("NaN", "+Inf", "-Inf", "-1", "1e300")),
        *((f"# TYPE {name} gauge\n{name} 3\n# TYPE b gauge\nb 2\n", {"b": {(): 2.0}}) for name in ("a", "a_total")),
        ("# TYPE a gauge\na 3\n# TYPE a_total counter\na_total 7\n", {"a": {(): 7.0}}),
        *(
            (OPENMETRICS.replace("\n", ends), {"a": {(("b", "1"),): 5.0, (("b", "2"),): 6.0}})
            for ends in ("\n", "\r\n")
        ),
    ],
)
def test_counters_come_without_total_and_gauges_times_and_what_is_no_count_do_not(text: str, counters: Page) -> None:
    assert parsed(lines_of(text), ("a",), ("b",)) == counters


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "is empty") for text in ("", "\n \n")),
        ("<!DOCTYPE html><html></html>\n", "is HTML"),
        *((text, "is JSON") for text in ('{"detail": "Not Found"}\n', "[]")),
        *((text, "is cut off") for text in ("a_total 1\nb_total", "a_total 1\nb_total 2")),
    ],
)
def test_what_is_no_page_is_named(text: str, why: str) -> None:
    with pytest.raises(NotMetricsError, match=why):
        lines_of(text)


@pytest.mark.parametrize("line", ["a_total", "a_total x", 'a{b="c 1', 'a{b="c"} ', "a{ 1", "a{b} 1", 'a{="c"} 1'])
def test_a_line_that_cannot_be_parsed_is_quoted(line: str) -> None:
    with pytest.raises(NotMetricsError, match="not in a Prometheus format") as refused:
        parsed(lines_of(f"{line}\n"), ("a",))
    assert "\n" not in str(refused.value)


def test_a_page_of_more_series_than_can_be_read_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_LINES", 200)
    lines = [f'a{{b="{number}"}} 1' for number in range(201)]
    assert len(parsed(lines[:-1], ("a",))["a"]) == 200
    with pytest.raises(NotMetricsError, match="has 201 lines"):
        parsed(lines, ("a",))


@given(st.text(max_size=200) | st.text(alphabet='a_total{}",= \\1e9.+-NaInf\t#TYPEHLcounterga\n', max_size=80))
def test_no_text_is_more_than_a_page_of_counts_or_a_line_of_error(text: str) -> None:
    try:
        lines = lines_of(f"a{text}\n")
        require_metrics(lines)
        found = parsed(lines, ("a",))
    except NotMetricsError as error:
        said, found = str(error), {}
    else:
        said = ""
    assert "\n" not in said
    assert all(min(series.values()) >= 0 for series in found.values())


def test_other_metrics_are_metrics_and_garbage_is_not() -> None:
    require_metrics(lines_of("# HELP up Whether it is up.\n# TYPE up gauge\nup 1\n"))
    with pytest.raises(NotMetricsError, match="not in a Prometheus format"):
        require_metrics(lines_of("hello world, nice to meet you\n"))
