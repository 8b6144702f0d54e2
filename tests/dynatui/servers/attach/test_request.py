"""A completion request: its form for each kind of server, and the reported rounds of its answer."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from decoder.events import encode
from dynatui.servers.attach.events import Answer, decode_line
from dynatui.servers.attach.figures import PageError
from dynatui.servers.attach.request import Request, answer, body, sent
from dynatui.servers.attach.servers import KINDS

REQUEST = Request("The door opened", 64)
MODELS = '{"object": "list", "data": [{"id": "big", "object": "model"}, {"id": "small"}]}'


def completion(**more: object) -> str:
    return json.dumps(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "choices": [{"index": 0, "text": " and the light", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11},
            **more,
        }
    )


def told(**more: object) -> Answer:
    return answer(completion(**more), REQUEST, "big", t=1.0, seconds=0.5)


SUMS = {"num_spec_steps": 4, "num_accepted_draft_tokens": 4, "num_draft_tokens": 10, "mean_acceptance_length": 2.0}
VLLM = {"speculative_decoding": {**SUMS, "per_step_accepted": [2, 0, 1, 1], "per_step_drafted": [3, 3, 3, 1]}}
SGLANG = {"spec_tokens_details": {"spec_verify_ct": 4, "spec_num_correct_drafts": 4, "spec_num_proposed_drafts": 12}}
FOUR = {"rounds": 4, "accepted": 4, "tokens_per_round": 2.0}
TEN = {"drafted": 10, "acceptance_rate": 0.4}
UNKNOWN = Answer(t=1.0, seconds=0.5, model="big", prompt="The door opened", text=" and the light", generated=8)


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({"metrics": VLLM}, FOUR | TEN | {"drafted_by_round": (3, 3, 3, 1), "accepted_by_round": (2, 0, 1, 1)}),
        ({"metrics": {"speculative_decoding": SUMS}}, FOUR | TEN),
        ({"timings": {"predicted_n": 8, "draft_n": 10, "draft_n_accepted": 4}}, TEN | {"accepted": 4}),
        ({"sglext": SGLANG}, FOUR | {"drafted": 12, "acceptance_rate": 4 / 12}),
        ({"timings": {"draft_n": -1, "draft_n_accepted": 2**60}}, {}),
        *((nothing, {}) for nothing in ({}, {"metrics": None}, {"metrics": {"speculative_decoding": None}})),
    ],
    ids=["vLLM", "vLLM's sums", "llama.cpp", "SGLang", "impossible", *["nothing"] * 3],
)
def test_what_a_server_tells_of_its_rounds_is_told_and_no_more(more: dict[str, Any], known: dict[str, Any]) -> None:
    assert told(**more) == structs.replace(UNKNOWN, **known)


@pytest.mark.parametrize(
    ("accepted", "drafted"), [([1], [1, 2]), ([3], [2]), ([-1], [2]), ([0], [2**60]), ([1] * 70_000, [1] * 70_000)]
)
def test_rounds_that_cannot_be_are_not_told(accepted: list[int], drafted: list[int]) -> None:
    found = told(metrics={"speculative_decoding": {"per_step_accepted": accepted, "per_step_drafted": drafted}})
    assert found.drafted_by_round == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "<html>", '{"choices": 3}', '{"choices": [{"text": 1}]}', "[" * 99_999),
        completion().replace("the light", "\\ud800"),
    ],
)
def test_what_is_no_completion_is_one_line(text: str) -> None:
    with pytest.raises(PageError, match="is not a completion") as refused:
        answer(text, REQUEST, "big", t=0.0, seconds=0.0)
    assert "\n" not in str(refused.value)


def test_an_answer_is_an_event_of_a_recording() -> None:
    assert decode_line(encode(told(metrics=VLLM)), 1) == told(metrics=VLLM)
    huge = Request("x" * 2**21, 2**80).event()
    assert decode_line(encode(huge), 1) == huge


def test_each_kind_of_server_is_asked_to_tell_what_it_can() -> None:
    usual = {"model": "big", "prompt": "The door opened", "max_tokens": 64, "temperature": 0}
    assert body(REQUEST, "big", KINDS["vllm"]) == body(REQUEST, "big", None) == usual
    assert body(REQUEST, "big", KINDS["sglang"]) == usual | {"return_spec_tokens_details": True}


class Api:
    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Mapping[str, Any] | None]] = []

    def ask(self, url: str, sent_body: Mapping[str, Any] | None) -> str:
        self.asked.append((url, sent_body))
        name = url.rpartition("/")[2]
        if name not in self.answers:
            raise PageError(f"host answers 404 Not Found to /v1/{name}")
        return self.answers[name]


def test_the_first_model_is_asked_and_the_time_is_taken() -> None:
    api, times = Api(models=MODELS, completions=completion()), iter([10.0, 12.5])
    found = sent(REQUEST, "http://host", None, api.ask, lambda: next(times))
    assert [url for url, _ in api.asked] == ["http://host/v1/models", "http://host/v1/completions"]
    assert (found.model, found.seconds, found.error) == ("big", 2.5, "")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "answers 404 Not Found to /v1/models"),
        ({"models": '{"data": []}'}, "lists no model"),
        ({"models": "<html>"}, "is not a list of models"),
        ({"models": MODELS}, "answers 404 Not Found to /v1/completions"),
        ({"models": MODELS, "completions": "no"}, "is not a completion"),
    ],
)
def test_why_there_is_no_answer_is_told(answers: dict[str, str], why: str) -> None:
    found = sent(REQUEST, "http://host", None, Api(**answers).ask, lambda: 0.0)
    assert why in found.error
    assert found.text == ""
