"""Profiles of drafts on a user's prompts: scores every text once, keeps the counts in a log from which a stopped
profile goes on, and measures passes on this machine.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import msgspec
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import PromptError, require
from decoder.heads.dflash import BlockHead
from decoder.models.names import LOOKUP, MTP
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts, encoded
from decoder.models.tokenizer import TextTokenizer
from decoder.prompts.prompt import as_prompt, templated
from dynatui.lab.bench.on_pair import Done, Note, Progress, Show, interrupted
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, header_now, opened
from dynatui.lab.tuning.drafts import OnDrafts, guesses_at_once, loaded
from dynatui.lab.tuning.scoring import Tokens, given, scored, written
from dynatui.lab.tuning.sizes import head_size, model_size
from dynatui.number_format import counted as counted_words
from dynatui.servers import costs as known_costs
from dynatui.servers.costs import ROWS, NamedDevice
from dynatui.servers.profile_file import LONGEST_CHAIN, SCHEMA, Costs, DraftKind, DraftProfile, ModelSize, Profile
from dynatui.servers.survival import TextCounts, counted, grouped, stopped, trees


@dataclass(frozen=True)
class OnServer(OnDrafts):
    """What of the prompts is profiled, and what is known of the server's costs."""

    answers: tuple[str, ...] = ()
    """To each prompt; empty for none."""
    step_s: float | None = None
    draft_s: tuple[float, ...] = ()
    """Of a pass of each draft that is not lookup, in the order of `drafts`."""
    roofline: NamedDevice | None = None


class ProfileRequest(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    drafts: tuple[str, ...]
    device: str
    dtype: str
    draft_dtype: str
    seed: int
    temperature: float
    top_k: int
    top_p: float
    max_new_tokens: int
    chat: bool | None
    texts: str
    """SHA-256 of prompts and answers."""


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """What all drafts did on the text of one prompt."""

    prompt: int
    context: int
    """Tokens of the prompt."""
    tokens: int
    answered: bool
    drafts: dict[str, TextCounts]


Header: TypeAlias = LogHeader[ProfileRequest, Costs]
ProfileLog: TypeAlias = RecordLog[Header, Scored]
FORMAT: LogFormat[Header, Scored] = LogFormat(
    msgspec.json.Decoder(Header | Scored), SCHEMA, "set --output to another file"
)


@dataclass(frozen=True)
class _Text:
    number: int
    prompt: Tokens
    answer: Tokens


@dataclass(frozen=True)
class _Loaded:
    engines: Mapping[str, Engine]
    refused: Mapping[str, str]
    texts: Sequence[_Text]
    left_out: int

    @property
    def engine(self) -> Engine:
        return next(iter(self.engines.values()))


def log_of(output: Path) -> Path:
    """The log beside a profile, from which a stopped measurement goes on."""
    return output.with_name(f"{output.name}.log")


def profiled(job: OnServer, output: Path, note: Note, show: Show = iter) -> Done[Profile]:
    """Scores all texts that the log lacks; after an interrupt, the profile is of the texts so far.

    Raises KeyboardInterrupt if there is none, and DecoderError if no draft can be used with this target, no prompt
    fits, or the log is of another profile.
    """
    with opened(log_of(output), FORMAT) as log:
        try:
            return _scored(job, log, note, show)
        finally:
            if log.header is None:
                log_of(output).unlink(missing_ok=True)


def _scored(job: OnServer, log: ProfileLog, note: Note, show: Show) -> Done[Profile]:
    engines, refused = loaded(job, note)
    texts, left_out = _encoded(job, next(iter(engines.values())).pair, engines, note)
    whole = _Loaded(engines, refused, texts, left_out)
    context = round(fmean(len(text.prompt) for text in texts)) + job.config.max_new_tokens // 2
    pair = whole.engine.pair
    header = header_now(
        log,
        _request(job, whole),
        pair.target.device,
        lambda: _measured(engines, context),
        note,
        context=pair.context,
    )
    header = log.begin(header)
    early = interrupted(show(_steps(job, whole, log)))
    if not log.records:
        raise KeyboardInterrupt
    return Done(_profile(job, whole, header.costs, log.records), early)


def _encoded(job: OnServer, pair: Pair, engines: Mapping[str, Engine], note: Note) -> tuple[list[_Text], int]:
    """Texts, and the number of prompts that do not fit in the context; raises PromptError if none does."""
    context = min(engine.pair.context for engine in engines.values())
    found, refused = list[_Text](), list[PromptError]()
    answers = job.answers or ("",) * len(job.prompts)
    for number, (prompt, answer) in enumerate(zip(job.prompts, answers, strict=True)):
        most = job.config.max_new_tokens + LONGEST_CHAIN
        try:
            (ids,) = encode_prompts(pair.tokenizer, [prompt], most, context, chat=job.config.chat)
        except PromptError as error:
            refused.append(error)
            continue
        uses = templated(prompt, job.config.chat)
        found.append(_Text(number, ids, encoded(pair.tokenizer, answer) if uses else []))
    if not found:
        raise refused[0]
    if refused:
        note(f"{counted_words(len(refused), 'prompt')} left out: {refused[0]}")
    return found, len(refused)


def _request(job: OnServer, whole: _Loaded) -> ProfileRequest:
    pair, sampling = whole.engine.pair, job.config.sampling
    digest = hashlib.sha256(msgspec.json.encode([[as_prompt(prompt) for prompt in job.prompts], job.answers]))
    return ProfileRequest(
        target=pair.target_name,
        drafts=tuple(whole.engines),
        device=pair.device,
        dtype=pair.dtype,
        draft_dtype=job.draft_dtype,
        seed=job.config.seed,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        max_new_tokens=job.config.max_new_tokens,
        chat=job.config.chat,
        texts=digest.hexdigest(),
    )


def _steps(job: OnServer, whole: _Loaded, log: ProfileLog) -> Iterator[Progress]:
    config, done = job.config, {record.prompt for record in log.records}
    for text in whole.texts:
        if text.number in done:
            continue
        places, seed = config.max_new_tokens, config.seed + text.number
        by_target = written(whole.engine, text.prompt, places, config.sampling, seed) if not text.answer else None
        known = by_target or given(whole.engine.pair, text.prompt, text.answer, places, config.sampling, seed)
        log.add(
            Scored(
                prompt=text.number,
                context=len(text.prompt),
                tokens=known.places,
                answered=by_target is None,
                drafts={name: counted(scored(each.pair, known)) for name, each in whole.engines.items()},
            )
        )
        count = len(log.records)
        yield Progress(f"{count} of {len(whole.texts)} prompts", count / len(whole.texts))


def _measured(engines: Mapping[str, Engine], context: int) -> Costs:
    """Passes of this machine after `context` tokens; a head that guesses several levels at once takes one pass."""
    first = next(iter(engines.values()))
    own = {name: engine.costs_of(context) for name, engine in engines.items()}
    target = own[next(iter(engines))]
    return Costs(
        source="measured",
        device=first.pair.device,
        context=context,
        target_s={rows: target.plain.seconds(1) if rows == 1 else target.verify.seconds(rows) for rows in ROWS},
        draft_s={
            name: (each.draft if guesses_at_once(engines[name].pair) is None else each.catch_up).seconds(1)
            for name, each in own.items()
            if not engines[name].pair.looks_up
        },
        fixed_s=target.host.seconds(1),
    )


def _profile(job: OnServer, whole: _Loaded, measured: Costs, records: Sequence[Scored]) -> Profile:
    pair, sampling = whole.engine.pair, job.config.sampling
    size = model_size(job.target, pair.target.device)
    drafts = {
        name: _draft(name, engine.pair, size, job, [record for record in records if name in record.drafts])
        for name, engine in whole.engines.items()
    }
    usable = {name: draft for name, draft in drafts.items() if draft}
    require(
        bool(usable), "no text has a round of speculative decoding; give --max-new-tokens 2 or more, or longer answers"
    )
    tokens = sum(record.tokens for record in records)
    before = sum(record.tokens * (record.context + (record.tokens - 1) / 2) for record in records)
    return Profile(
        schema=SCHEMA,
        target=job.target,
        size=size,
        dtype=pair.dtype,
        drafts=usable,
        draft_errors={
            **whole.refused,
            **dict.fromkeys(drafts.keys() - usable.keys(), _TOO_SHORT),
        },
        costs=_costs(job, size, usable, measured),
        tokenizer_hash=_hash(pair.tokenizer),
        temperature=sampling.temperature,
        top_k=sampling.top_k or None,
        top_p=sampling.top_p if sampling.top_p < 1 else None,
        prompts=len(records),
        answers=sum(record.answered for record in records),
        left_out=whole.left_out,
        tokens=tokens,
        max_new_tokens=job.config.max_new_tokens,
        mean_context=before / tokens,
    )


_TOO_SHORT = "no text is long enough for a round"


def _draft(name: str, pair: Pair, target: ModelSize, job: OnServer, records: Sequence[Scored]) -> DraftProfile | None:
    """None if no text has a round."""
    texts, seed = [record.drafts[name] for record in records], job.config.seed
    categories = [as_prompt(job.prompts[record.prompt]).category for record in records]
    whole = grouped([text.greedy for text in texts], categories, seed)
    if whole is None:
        return None
    head = pair.head
    if head:
        size: ModelSize | None = head_size(name, head, target, pair.target.layers)
    else:
        size = None if pair.looks_up else model_size(name, pair.target.device)
    return DraftProfile(
        **structs.asdict(whole),
        kind=_kind(pair),
        size=size,
        levels_at_once=guesses_at_once(pair),
        probabilistic=grouped([text.drawn for text in texts if text.drawn], categories, seed),
        confidence=stopped([text.stopped for text in texts]),
        trees=trees(text.trees for text in texts),
    )


def _kind(pair: Pair) -> DraftKind:
    if pair.looks_up:
        return "lookup"
    if pair.head is None:
        return "model"
    if isinstance(pair.head, BlockHead):
        return "dflash"
    return "mtp" if pair.head.name == MTP else "eagle3"


def _costs(job: OnServer, size: ModelSize, drafts: Mapping[str, DraftProfile], measured: Costs) -> Costs:
    """The best that is known."""
    if job.step_s is not None:
        timed = dict(zip((name for name in job.drafts if name != LOOKUP), job.draft_s, strict=True))
        return known_costs.given(job.step_s, {name: seconds for name, seconds in timed.items() if name in drafts})
    if job.roofline:
        sizes = {name: draft.size for name, draft in drafts.items() if draft.size}
        return known_costs.roofline(job.roofline, size, sizes, round(measured.context))
    return measured


def _hash(tokenizer: TextTokenizer) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(tokenizer.get_vocab().items()))).hexdigest()
