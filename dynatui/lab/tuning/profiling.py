"""Profiles drafts on a user's prompts: scores each text once, and keeps the counts in a log from which an interrupted
profile resumes.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import msgspec
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import PromptError, require
from decoder.models.heads import head_kind
from decoder.models.names import LOOKUP
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts, encoded
from decoder.models.tokenizer import TextTokenizer
from decoder.prompt import AnyPrompt, as_prompt, templated
from decoder.run.config import RunConfig
from dynatui.lab.bench.on_pair import Done, Note, PairRequest, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, header_now, opened
from dynatui.lab.tuning.drafts import Drafts, guesses_at_once, head_size, least_costs, measured_costs, model_size
from dynatui.lab.tuning.scoring import Tokens, given, scored, written
from dynatui.lab.tuning.survival import TextCounts, counted, grouped, stopped, trees
from dynatui.number_format import counted as counted_words
from dynatui.servers.costs import NamedDevice
from dynatui.servers.profile_file import LONGEST_CHAIN, SCHEMA, Costs, DraftProfile, ModelSize, Profile


@dataclass(frozen=True)
class OnServer:
    """Request for a profile: the drafts, the prompts and their answers, and what is known of the server's costs."""

    drafts: Drafts
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    answers: tuple[str, ...]
    """Answer to each prompt, "" for a prompt without an answer."""
    step_s: float | None = None
    draft_s: tuple[float, ...] = ()
    """Seconds of a pass of each draft except lookup, in the order of `drafts`."""
    roofline: NamedDevice | None = None


class ProfileRequest(PairRequest, frozen=True, kw_only=True):
    drafts: tuple[str, ...]
    temperature: float
    top_k: int
    top_p: float
    max_new_tokens: int
    chat: bool | None
    texts: str
    """SHA-256 of prompts and answers."""


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """Counts of all drafts on the text of one prompt."""

    prompt: int
    context: int
    """Number of tokens of the prompt."""
    tokens: int
    answered: bool
    drafts: dict[str, TextCounts]


Header: TypeAlias = LogHeader[ProfileRequest, Costs]
ProfileLog: TypeAlias = RecordLog[Header, Scored]
FORMAT: LogFormat[Header, Scored] = LogFormat(
    msgspec.json.Decoder(Header | Scored), SCHEMA, "set --output to another file"
)


def log_of(output: Path) -> Path:
    """Path of the log beside a profile, from which an interrupted measurement resumes."""
    return output.with_name(f"{output.name}.log")


def profiled(job: OnServer, output: Path, note: Note, show: Show = iter) -> Done[Profile]:
    """Scores all texts that the log lacks, and returns the profile; after an interrupt, it covers the texts so far.

    Raises KeyboardInterrupt if an interrupt comes before the first text is scored, and DecoderError if no draft can be
    used with this target, no prompt fits, or the log belongs to another profile.
    """
    with opened(log_of(output), FORMAT) as log:
        try:
            engines, refused = job.drafts.loaded(note)
            pair = next(iter(engines.values())).pair
            texts = _encoded(job, pair.tokenizer, min(engine.pair.context for engine in engines.values()), note)
            context = round(fmean(len(prompt) for prompt, _ in texts.values())) + job.config.max_new_tokens // 2
            costs, device = partial(measured_costs, engines, context), pair.target.device
            request = _request(job, pair, tuple(engines))
            header = log.begin(header_now(log, request, device, costs, note, context=pair.context))
            early = interrupted(show(_steps(job, engines, texts, log)))
        finally:
            if log.header is None:
                log_of(output).unlink(missing_ok=True)
        if not log.records:
            raise KeyboardInterrupt
        return Done(_profile(job, engines, refused, header.costs, log.records, len(job.prompts) - len(texts)), early)


Texts: TypeAlias = Mapping[int, tuple[Tokens, Tokens]]
"""{number of a prompt: (token ids of the prompt, token ids of its answer)}; the answer is empty if there is none."""


def _encoded(job: OnServer, tokenizer: TextTokenizer, context: int, note: Note) -> Texts:
    """Token ids of the prompts that fit in the context; raises PromptError if no prompt fits."""
    found, refused = dict[int, tuple[Tokens, Tokens]](), list[PromptError]()
    most, chat = job.config.max_new_tokens + LONGEST_CHAIN, job.config.chat
    for number, prompt in enumerate(job.prompts):
        try:
            (ids,) = encode_prompts(tokenizer, [prompt], most, context, chat=chat)
        except PromptError as error:
            refused.append(error)
        else:
            answer = job.answers[number] if templated(prompt, chat) else ""
            found[number] = ids, encoded(tokenizer, answer) if answer else []
    if not found:
        raise refused[0]
    if refused:
        note(f"{counted_words(len(refused), 'prompt')} left out: {refused[0]}")
    return found


def _request(job: OnServer, pair: Pair, drafts: tuple[str, ...]) -> ProfileRequest:
    config = job.config
    texts = msgspec.json.encode([[as_prompt(prompt) for prompt in job.prompts], job.answers])
    return ProfileRequest(
        **pair_names(pair) | {"draft_dtype": job.drafts.draft_dtype},
        seed=config.seed,
        drafts=drafts,
        temperature=config.sampling.temperature,
        top_k=config.sampling.top_k,
        top_p=config.sampling.top_p,
        max_new_tokens=config.max_new_tokens,
        chat=config.chat,
        texts=hashlib.sha256(texts).hexdigest(),
    )


def _steps(job: OnServer, engines: Mapping[str, Engine], texts: Texts, log: ProfileLog) -> Iterator[Progress]:
    engine, config, done = next(iter(engines.values())), job.config, {record.prompt for record in log.records}
    for number, (prompt, answer) in texts.items():
        if number in done:
            continue
        how = config.max_new_tokens, config.sampling, config.seed + number
        text = given(engine.pair, prompt, answer, *how) if answer else written(engine, prompt, *how)
        drafts = {name: counted(scored(each.pair, text)) for name, each in engines.items()}
        log.add(Scored(prompt=number, context=len(prompt), tokens=text.places, answered=bool(answer), drafts=drafts))
        count = len(log.records)
        yield Progress(f"{count} of {len(texts)} prompts", count / len(texts))


def _profile(
    job: OnServer,
    engines: Mapping[str, Engine],
    refused: Mapping[str, str],
    measured: Costs,
    records: Sequence[Scored],
    left_out: int,
) -> Profile:
    pair, sampling = next(iter(engines.values())).pair, job.config.sampling
    size = model_size(job.drafts.target, pair.target.device)
    drafts = {name: _draft(name, engine.pair, size, job, records) for name, engine in engines.items()}
    usable = {name: draft for name, draft in drafts.items() if draft}
    require(
        bool(usable), "no text has a round of speculative decoding; give --max-new-tokens 2 or more, or longer answers"
    )
    too_short = dict.fromkeys(drafts.keys() - usable.keys(), "no text is long enough for a round")
    tokens = sum(record.tokens for record in records)
    before = sum(record.tokens * (record.context + (record.tokens - 1) / 2) for record in records)
    words = msgspec.json.encode(sorted(pair.tokenizer.get_vocab().items()))
    return Profile(
        schema=SCHEMA,
        target=job.drafts.target,
        size=size,
        dtype=pair.dtype,
        drafts=usable,
        draft_errors={**refused, **too_short},
        costs=_costs(job, size, usable, measured),
        tokenizer_hash=hashlib.sha256(words).hexdigest(),
        temperature=sampling.temperature,
        top_k=sampling.top_k or None,
        top_p=sampling.top_p if sampling.top_p < 1 else None,
        prompts=len(records),
        answers=sum(record.answered for record in records),
        left_out=left_out,
        tokens=tokens,
        max_new_tokens=job.config.max_new_tokens,
        mean_context=before / tokens,
    )


def _draft(name: str, pair: Pair, target: ModelSize, job: OnServer, records: Sequence[Scored]) -> DraftProfile | None:
    """Profile of one draft; None if no text is long enough for a round."""
    texts, seed = [record.drafts[name] for record in records], job.config.seed
    categories = [as_prompt(job.prompts[record.prompt]).category for record in records]
    whole = grouped([text.greedy for text in texts], categories, seed)
    if whole is None:
        return None
    if pair.head:
        size: ModelSize | None = head_size(name, pair.head, target, pair.target.layers)
    else:
        size = None if pair.looks_up else model_size(name, pair.target.device)
    return DraftProfile(
        **structs.asdict(whole),
        kind=head_kind(pair.head) if pair.head else "lookup" if pair.looks_up else "model",
        size=size,
        levels_at_once=guesses_at_once(pair),
        probabilistic=grouped([text.drawn for text in texts if text.drawn], categories, seed),
        confidence=stopped([text.stopped for text in texts]),
        trees=trees(text.trees for text in texts),
    )


def _costs(job: OnServer, size: ModelSize, drafts: Mapping[str, DraftProfile], measured: Costs) -> Costs:
    """Costs from the first available source: the user, the roofline of a named device, measurement on this machine."""
    if job.step_s is not None:
        timed = dict(zip((name for name in job.drafts.names if name != LOOKUP), job.draft_s, strict=True))
        draft_s = {name: seconds for name, seconds in timed.items() if name in drafts}
        return Costs(source="given", target_s={1: job.step_s}, draft_s=draft_s)
    if job.roofline:
        sizes = {name: draft.size for name, draft in drafts.items() if draft.size}
        return least_costs(job.roofline, size, sizes, round(measured.context))
    return measured
