"""A server that disappears, answers slowly or wrongly, returns or restarts: the session shows it and continues."""

from collections.abc import Callable

import pytest

from dynatui.attach.address import address
from dynatui.attach.events import Event, Gap, Opening, Reading, Server
from dynatui.attach.exposition import NotMetricsError, PageError, lines_of
from dynatui.attach.servers import KINDS
from dynatui.attach.session import History, Polling, watch
from tests.dynatui.attach.page_server import page


class Scripted:
    """A server with a list of pages, and a fake clock that only its requests and pauses advance."""

    def __init__(self, *answers: str | PageError | Callable[[str], str], takes_s: float = 0.0) -> None:
        self.answers, self.takes_s = list(answers), takes_s
        self.now = 100.0
        self.asked: list[str] = []

    def page(self, url: str) -> str:
        self.now += self.takes_s
        self.asked.append(url)
        answer = self.answers.pop(0)
        if isinstance(answer, PageError):
            raise answer
        return answer(url) if callable(answer) else answer

    def pause(self, seconds: float) -> bool:
        assert seconds > 0
        self.now += seconds
        return not self.answers

    def clock(self) -> float:
        return self.now


def events(server: Scripted, url: str = "host:8000/metrics", interval_s: float = 1.0) -> list[Event]:
    return list(watch(Polling(address(url), interval_s), server.page, server.pause, server.clock))


def readings(found: list[Event]) -> list[Reading]:
    return [event for event in found if isinstance(event, Reading)]


ONE, TWO = page("vllm-1"), page("vllm-2")
AWAY = PageError("cannot reach host:8000: Connection refused")


def test_a_session_begins_with_its_opening_and_goes_on_with_the_server() -> None:
    opening, server, first, second = events(Scripted(ONE, TWO))
    assert isinstance(opening, Opening)
    assert (opening.url, opening.interval_s) == ("http://host:8000", 1.0)
    assert isinstance(server, Server)
    assert isinstance(first, Reading)
    assert isinstance(second, Reading)
    assert (first.t, second.t, second.interval.seconds) == (0.0, 1.0, 1.0)


def test_a_server_that_goes_away_and_comes_back_is_a_gap_with_its_reason() -> None:
    *_, before, gap, after = events(Scripted(ONE, AWAY, TWO))
    assert isinstance(before, Reading)
    assert gap == Gap(t=1.0, reason="cannot reach host:8000: Connection refused")
    assert isinstance(after, Reading)
    assert (after.interval.seconds, after.interval.drafts, after.interval.drafted_per_second) == (2.0, 100, 150.0)


def test_a_server_that_is_not_there_at_first_is_asked_until_it_is() -> None:
    found = events(Scripted(AWAY, AWAY, ONE))
    assert [type(event) for event in found] == [Opening, Gap, Gap, Server, Reading]


def test_a_server_that_begins_anew_counts_from_0() -> None:
    anew = TWO.replace("} 4880.0", "} 7.0").replace("} 14640.0", "} 21.0").replace("} 8230.0", "} 9.0")
    *_, last = events(Scripted(ONE, TWO, anew))
    assert isinstance(last, Reading)
    assert last.restarted
    assert (last.interval.drafts, last.interval.drafted, last.interval.accepted) == (7, 21, 9)
    assert last.session.drafts == 107


def test_a_metric_that_is_missing_for_a_while_goes_on_where_it_was() -> None:
    without = "".join(line for line in TWO.splitlines(keepends=True) if "num_drafts" not in line)
    _, middle, last = readings(events(Scripted(ONE, without, TWO)))
    assert (middle.interval.drafts, middle.interval.tokens_per_round, middle.interval.drafted) == (None, None, 300)
    assert (last.interval.drafts, last.session.drafts) == (100, 100)


def test_an_engine_that_is_missing_on_one_page_does_not_count_anew() -> None:
    without = "".join(line for line in TWO.splitlines(keepends=True) if 'engine="1"' not in line)
    _, middle, last = readings(events(Scripted(ONE, without, TWO)))
    assert (middle.interval.drafts, last.interval.drafts, last.session.drafts) == (80, 20, 100)
    assert last.interval.acceptance_by_position == pytest.approx([18 / 20, 13 / 20, 9 / 20])


def test_other_models_are_told_and_another_kind_of_server_begins_anew() -> None:
    other = TWO.replace("meta-llama/Llama-3.1-8B-Instruct", "another")
    found = events(Scripted(ONE, other, page("llamacpp-1"), page("llamacpp-2")))
    assert [event.models for event in found if isinstance(event, Server)] == [
        ["meta-llama/Llama-3.1-8B-Instruct"],
        ["another"],
        [],
    ]
    renamed, _, last = readings(found)[1:]
    assert (renamed.interval.drafts, renamed.restarted) == (100, False)
    assert (last.session.drafts, last.session.seconds) == (10, 1.0)


def test_the_second_page_is_tried_where_the_first_is_none_and_kept() -> None:
    def answer(url: str) -> str:
        if "prometheus" in url:
            return page("tensorrt_llm-1")
        raise NotMetricsError("the page is JSON")

    server = Scripted(answer, answer, answer, page("tensorrt_llm-2"))
    found = events(server, "host:8000")
    assert server.asked[:2] == ["http://host:8000/metrics", "http://host:8000/prometheus/metrics"]
    assert server.asked[2:] == ["http://host:8000/prometheus/metrics"] * 2
    assert len(readings(found)) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("up 1\n", "do not belong to a supported server; supported: vLLM, SGLang, llama.cpp, TensorRT-LLM, TGI"),
        ("", "is empty"),
        ("<html></html>\n", "is HTML"),
        ("hello\n", "not in a Prometheus format"),
        (ONE[:900], "is cut off"),
        (ONE.replace("} 4800.0", "} lots"), "not in a Prometheus format"),
    ],
)
def test_a_page_of_something_else_is_a_gap_with_one_line(text: str, reason: str) -> None:
    _, *gaps = events(Scripted(text, text))
    assert all(isinstance(gap, Gap) and reason in gap.reason and "\n" not in gap.reason for gap in gaps)
    assert len(gaps) == 2


def test_after_a_slow_answer_the_next_poll_is_on_time() -> None:
    server = Scripted(ONE, TWO, TWO, takes_s=2.5)
    assert [reading.t for reading in readings(events(server))] == [2.5, 5.5, 8.5]


def test_it_ends_after_as_many_polls_as_were_asked_for() -> None:
    server = Scripted(ONE, TWO, TWO)
    plan = Polling(address("host:8000/metrics"), 1.0, polls=2)
    found = list(watch(plan, server.page, server.pause, server.clock))
    assert len(readings(found)) == 2


def test_it_goes_on_beyond_its_polls_until_nothing_is_waited_for() -> None:
    server, left = Scripted(ONE, TWO, TWO, TWO, TWO), iter([True, True, False])
    plan = Polling(address("host:8000/metrics"), 1.0, polls=2)
    found = list(watch(plan, server.page, server.pause, server.clock, waiting=lambda: next(left)))
    assert len(readings(found)) == 4


def test_what_is_kept_stays_bounded_where_labels_change_at_every_poll() -> None:
    history = History()
    for number in range(50):
        lines = lines_of(ONE.replace("meta-llama", f"m{number}"))
        list(history.read("u", KINDS["vllm"], lines, float(number)))
    assert {name: len(series) for name, series in history._page.items()}["vllm:spec_decode_num_drafts"] == 2
    assert len(history._page) <= len(KINDS["vllm"].counters)
