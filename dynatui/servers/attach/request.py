"""Sends one request to a server's OpenAI-compatible API, and reads the figures of speculation in the response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from decoder.errors import first_line, quoted
from dynatui.servers.attach.events import LONGEST_NAME, LONGEST_TEXT, MOST_COUNTED, MOST_ROUNDS, Answer, RequestSent
from dynatui.servers.attach.figures import PageError, length, share
from dynatui.servers.attach.servers import Kind

PATIENCE_S = 600.0

T = TypeVar("T")
Ask: TypeAlias = Callable[[str, Mapping[str, Any] | None], str]
"""(URL, JSON body) -> response body, by POST, or GET if the body is None; raises a PageError."""


class _Counts(msgspec.Struct):
    """Counts of a request: the generated tokens, then counts by the names of vLLM, SGLang and llama.cpp."""

    completion_tokens: int | None = None
    per_step_accepted: list[int] | None = None
    per_step_drafted: list[int] | None = None
    num_spec_steps: int | None = None
    num_accepted_draft_tokens: int | None = None
    num_draft_tokens: int | None = None
    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Extension(msgspec.Struct):
    speculative_decoding: _Counts | None = None
    spec_tokens_details: _Counts | None = None


class _Choice(msgspec.Struct):
    text: str = ""


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Counts | None = None
    metrics: _Extension | None = None
    timings: _Counts | None = None
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
        tokens = min(self.max_new_tokens, MOST_COUNTED)
        return RequestSent(t=0.0, prompt=self.prompt[:LONGEST_TEXT], max_new_tokens=tokens)


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
    counts = (
        (completion.metrics and completion.metrics.speculative_decoding)
        or (completion.sglext and completion.sglext.spec_tokens_details)
        or completion.timings
        or _Counts()
    )
    drafted_by_round, accepted_by_round = _by_round(counts)
    rounds = _known(counts.num_spec_steps, counts.spec_verify_ct)
    drafted = _known(counts.num_draft_tokens, counts.spec_num_proposed_drafts, counts.draft_n)
    accepted = _known(counts.num_accepted_draft_tokens, counts.spec_num_correct_drafts, counts.draft_n_accepted)
    if drafted_by_round:
        rounds, drafted, accepted = len(drafted_by_round), sum(drafted_by_round), sum(accepted_by_round)
    return Answer(
        t=t,
        seconds=seconds,
        model=model[:LONGEST_NAME],
        prompt=request.prompt[:LONGEST_TEXT],
        text="".join(choice.text for choice in completion.choices)[:LONGEST_TEXT],
        generated=_known(completion.usage.completion_tokens if completion.usage else None),
        rounds=rounds,
        drafted=drafted,
        accepted=accepted,
        tokens_per_round=length(accepted, rounds),
        acceptance_rate=share(accepted, drafted),
        drafted_by_round=drafted_by_round,
        accepted_by_round=accepted_by_round,
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


def _by_round(counts: _Counts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(drafted tokens, accepted tokens) by round; empty if the counts are not reported or impossible."""
    drafted, accepted = tuple(counts.per_step_drafted or ()), tuple(counts.per_step_accepted or ())
    pairs = zip(drafted, accepted, strict=False)  # their numbers are compared below
    possible = all(0 <= some <= all_ <= MOST_COUNTED // MOST_ROUNDS for all_, some in pairs)
    return (drafted, accepted) if possible and len(drafted) == len(accepted) <= MOST_ROUNDS else ((), ())


def _known(*counts: int | None) -> int | None:
    """The first of the counts that is reported; None if it is impossible."""
    number = next((each for each in counts if each is not None), None)
    return number if number is not None and 0 <= number <= MOST_COUNTED else None


def _decoded(text: str, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PageError(f"the answer is not a {name}: {quoted(first_line(error))}") from None
