"""No event is written with NaN or infinity, for which JSON has only null; every event that is written can be read."""

import math
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.events import Draws, Event, Expected, Figures, Summary, Verification, decode_line, encode
from tests.decoder.example_events import EVENTS, ROUND, RUN
from tests.decoder.property_settings import examples

FLOATS = [name for name, type_ in get_type_hints(Figures).items() if type_ in (float, float | None)]
VERIFICATION = Verification(
    surprise=0.1,
    surprise_variance=0.2,
    top1=0.3,
    top1_variance=0.4,
    predicted_tokens=1.5,
    reach=[1.0, 0.5],
    path=[Draws(count=1, accepted=True, l1=0.5, acceptance=0.5, bound=0.6)],
)
FULL: dict[str, Event] = {
    **EVENTS,
    "run": msgspec.structs.replace(RUN, expected=Expected(target_read_s=0.1)),
    "round": msgspec.structs.replace(
        ROUND, draft_logprobs=[0.0, -0.2, -1.5], verification=VERIFICATION, stalled_s=0.1, waited_s=0.2, wall_s=0.3
    ),
    "summary": Summary(methods={"ar": msgspec.structs.replace(Figures(), **dict.fromkeys(FLOATS, 1.5))}),
}
BAD = (math.nan, math.inf, -math.inf)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all floats in an event."""
    if isinstance(value, float):
        yield path
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from places(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from places(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, (*path, index))


def changed(value: Any, path: tuple[Any, ...], number: float) -> Any:
    """The event with another float at a path."""
    if not path:
        return number
    first, *rest = path
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{first: changed(getattr(value, first), tuple(rest), number)})
    copy = value.copy()
    copy[first] = changed(value[first], tuple(rest), number)
    return copy


PLACES = [(event, path) for event in FULL.values() for path in places(event)]


def test_all_floats_of_events_are_tried() -> None:
    names = {path[-1] for _, path in PLACES}
    assert {"t", "surprise", "l1", "tau_h", "prefill_s", "target_read_s", "old", "temperature", "decode_s"} <= names
    assert len(PLACES) > 50


@examples(400)
@given(place=st.sampled_from(PLACES), number=st.floats() | st.sampled_from((*BAD, 5e-324, 1.7e308, -0.0)))
def test_an_event_with_any_float_is_read_as_it_was_written_or_is_not_written(
    place: tuple[Event, tuple[Any, ...]], number: float
) -> None:
    event, path = place
    if not math.isfinite(number):
        with pytest.raises(ValueError, match="not finite"):
            encode(changed(event, path, number))
        return
    if number < 0:
        number = -number  # durations are 0 or more
    number = number or 1.0
    given = changed(event, path, number)
    assert decode_line(encode(given), 1) == given


def test_a_parameter_of_a_method_is_finite() -> None:
    with pytest.raises(ValueError, match="not finite"):
        encode(msgspec.structs.replace(RUN, methods={"dynatree": {"tau_h": math.inf}}))
