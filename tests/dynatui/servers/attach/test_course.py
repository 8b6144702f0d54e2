"""What a server did is summed by life, part of the session and load, and gives the step times of a load model."""

from collections.abc import Iterator
from itertools import chain

import pytest

from dynatui.servers.attach.course import Course, Span, followed, load_class, load_points
from dynatui.servers.attach.events import Figures, Load, Reading
from dynatui.servers.attach.servers import KINDS
from tests.dynatui.servers.attach.scripted_session import session
from tests.dynatui.servers.attach.stand_in import RATES, StandIn, state_after, steady, vllm, watched


def course_of(server: StandIn, pages: Iterator[str]) -> Course:
    return state_after(server, pages).course


def test_lives_are_parted_by_restarts_and_hold_all_rounds() -> None:
    server = vllm()
    course = course_of(server, chain(steady(server, 7, 100), steady(vllm(), 3, 200)))
    assert course.before is not None
    assert (course.before.rounds, course.life.rounds, course.k) == (700, 600, 5)
    assert course.life.accepted_at == (450, 360, 288, 240, 198)
    assert course.life.length == pytest.approx(1 + sum(RATES))


def test_parts_of_a_session_of_any_length_are_few_of_about_equal_size_and_hold_all_rounds() -> None:
    course = Course()
    for number in range(5000):
        interval = Figures(seconds=1.0, drafts=30, drafted=90, accepted=60, generated=90, accepted_by_position=(30, 30))
        course = followed(course, Reading(t=float(number), interval=interval, session=interval))
        assert len(course.pieces) <= 16
    assert sum((piece.rounds for piece in course.pieces), 0) == course.life.rounds == 150_000
    sizes = [piece.rounds for piece in course.pieces[:-1]]
    assert max(sizes) < 1.1 * min(sizes)
    assert len(course.pieces) >= 8


def test_figures_by_load_are_those_of_intervals_in_which_the_load_was_steady() -> None:
    server = vllm()

    def pages() -> Iterator[str]:
        yield server.page()
        for running, rounds, step_s in (
            (4, 100, 0.02),
            (4, 100, 0.02),
            (32, 800, 0.05),
            (32, 800, 0.05),
            (0, 10, 0.02),
        ):
            server.running, server.step_s = running, step_s
            server.serve(rounds)
            yield server.page()

    cells = course_of(server, pages()).by_load
    assert {cell.timed_running: cell.rounds for cell in cells.values()} == {4.0: 200, 32.0: 800}
    assert [cell.step_s for cell in cells.values()] == pytest.approx([0.02, 0.05])


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tgi"])
@pytest.mark.parametrize("drafting", [True, False])
def test_every_server_that_counts_drafted_tokens_tells_the_time_of_a_step_at_its_load(
    name: str, *, drafting: bool
) -> None:
    server = StandIn(KINDS[name], step_s=0.03, running=8.0)

    def plain() -> Iterator[str]:
        yield server.page()
        for _ in range(3):
            server.write(500)
            yield server.page()

    points = list(load_points(watched(server, steady(server, 3) if drafting else plain())))
    assert [(point.running, point.k) for point in points] == [(8.0, 5.0 if drafting else 0.0)] * 3
    assert [point.step_s for point in points] == pytest.approx([0.03] * 3, rel=1e-3)


def test_without_a_latency_the_step_follows_from_running_requests_and_rounds() -> None:
    interval = Figures(seconds=2.0, drafts=100, drafted=300, generated=270)
    first = Reading(t=0.0, interval=Figures(seconds=0.0), session=interval, load=Load(running=4))
    last = Reading(t=2.0, interval=interval, session=interval, load=Load(running=4))
    (point,) = load_points([first, last])
    assert (point.running, point.k) == (4, 3)
    assert point.step_s == pytest.approx(0.08)


def test_recordings_without_load_tell_no_step_and_neither_does_a_restart() -> None:
    assert not list(load_points(session(30)))
    server = vllm()
    pages = [*steady(server, 2), *steady(vllm(), 0)]
    assert len(list(load_points(watched(server, iter(pages))))) == 2


def test_loads_that_differ_by_a_factor_of_two_are_in_other_classes() -> None:
    assert [load_class(running) for running in (0.5, 1, 2, 4, 64)] == [0, 0, 2, 4, 12]


def test_rates_are_of_rounds_or_of_what_was_drafted_there() -> None:
    assert Span(rounds=100, accepted_at=(50, 20)).rates == (0.5, 0.2)
    assert Span(rounds=100, accepted_at=(50, 20), drafted_at=(100, 40)).rates == (0.5, 0.5)
    assert Span().rates == ()
