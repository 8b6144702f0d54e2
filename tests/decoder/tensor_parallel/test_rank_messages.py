"""Messages of the leader arrive unchanged, whatever their length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.tensor_parallel.messages import (
    FRAME,
    Begin,
    Message,
    Pass,
    Peak,
    decode,
    encode,
    join_frame,
    rest_length,
    split_frame,
)
from tests.decoder.property_settings import examples

NUMBERS = st.integers(0, 2**40)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40)


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    rows, further = draw(st.integers(1, 70)), draw(st.integers(0, 70))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    return Pass(
        cache=draw(NUMBERS),
        capacity=draw(NUMBERS),
        used=draw(NUMBERS),
        moved=draw(PAIRS),
        gone=draw(st.lists(NUMBERS, max_size=5)),
        tokens=generator.integers(0, 300_000, rows).tolist(),
        positions=generator.integers(0, 100_000, rows).tolist(),
        visible=generator.random((rows, rows + further)) < 0.5,
    )


def arrived(message: Message) -> Message:
    """The message as a follower decodes it, which derives the number of further words from the frame."""
    frame, rest = split_frame(encode(message))
    assert (frame.shape, len(rest)) == ((FRAME,), rest_length(frame))
    return decode(join_frame(frame, rest))


def fields(message: Message) -> dict[str, object]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(message).items()}


@examples(60)
@given(message=passes())
def test_a_pass_arrives_as_it_was_told(message: Pass) -> None:
    found = arrived(message)
    assert isinstance(found, Pass)
    assert fields(found) == fields(message)
    assert found.visible.dtype == np.bool_


@pytest.mark.parametrize("message", [Begin(0), Begin(3), Peak()])
def test_other_messages_arrive_too(message: Message) -> None:
    assert arrived(message) == message


def test_a_long_text_takes_more_than_a_frame_and_arrives() -> None:
    rows = 512
    message = Pass(0, 4096, 1024, [], [], list(range(rows)), list(range(rows)), np.tri(rows, dtype=np.bool_))
    assert rest_length(split_frame(encode(message))[0]) > 0
    assert fields(arrived(message)) == fields(message)


def test_a_small_tree_fits_in_a_frame() -> None:
    message = Pass(0, 4096, 1024, [(3, 9)], [1], [5] * 64, [7] * 64, np.eye(64, dtype=np.bool_))
    assert rest_length(split_frame(encode(message))[0]) == 0


def test_words_of_no_message_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of message: 17"):
        decode(np.array([17]))
