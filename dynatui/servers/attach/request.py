"""Sends one request to a server's OpenAI-compatible API, and reads the figures of speculation in the response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from decoder.errors import first_line, quoted
from dynatui.servers.attach.events import LONGEST_NAME, LONGEST_TEXT, MOST_ROUNDS, Answer, RequestSent
from dynatui.servers.attach.exposition import LARGEST, PageError
from dynatui.servers.attach.figures import length, share
from dynatui.servers.attach.servers import Kind

PATIENCE_S = 600.0

T = TypeVar("T")
Ask: TypeAlias = Callable[[str, Mapping[str, Any] | None], str]
"""(URL, JSON body) -> response body, by POST, or GET if the body is None; raises a PageError."""


class _Vllm(msgspec.Struct):
    per_step_accepted: list[int] | None = None
    per_step_drafted: list[int] | None = None
    num_spec_steps: int | None = None
    num_accepted_draft_tokens: int | None = None
    num_draft_tokens: int | None = None


class _Metrics(msgspec.Struct):
    speculative_decoding: _Vllm | None = None


class _Timings(msgspec.Struct):
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Sglang(msgspec.Struct):
    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None


class _Extension(msgspec.Struct):
    spec_tokens_details: _Sglang | None = None


class _Choice(msgspec.Struct):
    text: str = ""


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    timings: _Timings | None = None
    sglext: _Extension | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True)
class Request:
    prompt: str
    max_new_tokens: int = 128

    def event(self) -> RequestSent:
        return RequestSent(t=0.0, prompt=self.prompt[:LONGEST_TEXT], max_new_tokens=min(self.max_new_tokens, LARGEST))


def body(request: Request, model: str, kind: Kind | None) -> Mapping[str, Any]:
    """JSON body for greedy decoding, with a field that makes SGLang report speculation counts."""
    more = {"return_spec_tokens_details": True} if kind is not None and kind.name == "sglang" else {}
    fields = {"model": model, "prompt": request.prompt, "max_tokens": request.max_new_tokens, "temperature": 0}
    return fields | more


def model_of(text: str) -> str:
    models = _decoded(text, _Models, "list of models").data
    if not models:
        raise PageError("the server lists no model")
    return models[0].id


def answer(text: str, request: Request, model: str, *, t: float, seconds: float) -> Answer:
    completion = _decoded(text, _Completion, "completion")
    vllm = completion.metrics.speculative_decoding if completion.metrics else None
    sglang = completion.sglext.spec_tokens_details if completion.sglext else None
    drafted, accepted = _by_round(vllm)
    totals = _totals(vllm, sglang, completion.timings)
    if drafted:
        totals = len(drafted), sum(drafted), sum(accepted)
    return Answer(
        t=t,
        seconds=seconds,
        model=model[:LONGEST_NAME],
        prompt=request.prompt[:LONGEST_TEXT],
        text="".join(choice.text for choice in completion.choices)[:LONGEST_TEXT],
        generated=_count(completion.usage.completion_tokens if completion.usage else None),
        rounds=totals[0],
        drafted=totals[1],
        accepted=totals[2],
        tokens_per_round=length(totals[2], totals[0]),
        acceptance_rate=share(totals[2], totals[1]),
        drafted_by_round=tuple(drafted),
        accepted_by_round=tuple(accepted),
    )


def sent(request: Request, base: str, kind: Kind | None, ask: Ask, clock: Callable[[], float]) -> Answer:
    """Sends the request and returns the answer; the caller sets the answer's time `t`."""
    began, model = clock(), ""
    try:
        model = model_of(ask(f"{base}/v1/models", None))
        text = ask(f"{base}/v1/completions", body(request, model, kind))
        return answer(text, request, model, t=0.0, seconds=clock() - began)
    except PageError as error:
        fault, prompt = str(error)[:LONGEST_TEXT], request.prompt[:LONGEST_TEXT]
        return Answer(t=0.0, seconds=clock() - began, model=model[:LONGEST_NAME], prompt=prompt, error=fault)


def _by_round(vllm: _Vllm | None) -> tuple[list[int], list[int]]:
    """Drafted and accepted tokens of each round; both lists are empty if the counts are not reported or impossible."""
    drafted, accepted = (vllm.per_step_drafted or [], vllm.per_step_accepted or []) if vllm else ([], [])
    possible = (0 <= some <= all_ <= LARGEST // MOST_ROUNDS for some, all_ in zip(accepted, drafted, strict=False))
    return (drafted, accepted) if len(drafted) == len(accepted) <= MOST_ROUNDS and all(possible) else ([], [])


def _totals(
    vllm: _Vllm | None, sglang: _Sglang | None, timings: _Timings | None
) -> tuple[int | None, int | None, int | None]:
    if vllm:
        counts = vllm.num_spec_steps, vllm.num_draft_tokens, vllm.num_accepted_draft_tokens
    elif sglang:
        counts = sglang.spec_verify_ct, sglang.spec_num_proposed_drafts, sglang.spec_num_correct_drafts
    elif timings:
        counts = None, timings.draft_n, timings.draft_n_accepted
    else:
        counts = None, None, None
    return _count(counts[0]), _count(counts[1]), _count(counts[2])


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= LARGEST else None


def _decoded(text: str, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PageError(f"the answer is not a {name}: {quoted(first_line(error))}") from None
