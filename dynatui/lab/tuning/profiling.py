"""Profiles drafts on a user's prompts: scores each text once, and keeps the counts in a log, from which an interrupted
profile resumes. A profile also has the times of the drafts' passes, and their sizes as a server would load them: in the
checkpoint's dtype, computed from configurations.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import msgspec
import torch
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, PromptError, require
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.heads.mtp import MtpHead
from decoder.heads.parts import HeadModule, StatesReader
from decoder.models.checkpoint_files import weight_files
from decoder.models.checkpoints import display_name, load_config
from decoder.models.compatibility import tokenizers_of
from decoder.models.gguf_file import GgufFile, row_bytes
from decoder.models.heads import head_kind, is_model_free
from decoder.models.hub import cached_folder, is_hub_id
from decoder.models.names import LOOKUP, MTP
from decoder.models.pair import Pair
from decoder.models.quantisation import memory_of, quantisation_of
from decoder.models.text import encode_prompts, encoded
from decoder.models.tokenizer import TextTokenizer
from decoder.prompt import AnyPrompt, as_prompt, templated
from decoder.run.config import RunConfig
from decoder.run.expected import work_of_config
from decoder.run.loading import load_pair, with_draft
from decoder.session.host import passes_of
from dynatui.lab.bench import Done, Note, PairRequest, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, begun, opened
from dynatui.lab.tuning.scoring import Tokens, given, scored, written
from dynatui.lab.tuning.survival import TextCounts, counted, grouped, stopped, trees
from dynatui.number_format import counted as counted_words
from dynatui.servers.costs import NamedDevice, roofline
from dynatui.servers.profile_file import LONGEST_CHAIN, SCHEMA, Costs, DraftProfile, ModelSize, Profile

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
"""Numbers of rows (tokens of one text) for which a profile has the time of a target pass."""
_KV_ROWS = 1024


@dataclass(frozen=True)
class OnServer:
    """Request for a profile: the drafts, the prompts and their answers, and what is known of the server's costs."""

    target: str
    drafts: tuple[str, ...]
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    answers: tuple[str, ...]
    """Answer to each prompt, "" for a prompt without an answer."""
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    step_s: float | None = None
    draft_s: tuple[float, ...] = ()
    """Seconds of a pass of each draft except lookup, in the order of `drafts`."""
    roofline: NamedDevice | None = None


def loaded(job: OnServer, note: Note) -> tuple[dict[str, Engine], dict[str, str]]:
    """Engines of the usable drafts, and reasons why other drafts are unusable, by name of the draft; raises the first
    such error if no draft is usable.
    """
    require(bool(job.drafts), "--drafts is empty; give hub ids or folders with commas between them")
    engines: dict[str, Engine] = {}
    refused: dict[str, DecoderError] = {}
    for name in job.drafts:
        try:
            engines[name] = _engine(job, name, next(iter(engines.values()), None), note)
        except (ConfigError, ModelError) as error:
            note(f"{name} is left out: {error}")
            refused[name] = error
    if not engines:
        raise next(iter(refused.values()))
    return engines, {name: str(error) for name, error in refused.items()}


def _engine(job: OnServer, draft: str, first: Engine | None, note: Note) -> Engine:
    """Engine of a draft; all engines after the first share its target."""
    if not is_model_free(draft) and tokenizers_of(job.target, draft)[1]:
        raise PairError(
            f"{draft} does not have the tokenizer of {job.target}, but drafts are compared by how many of the "
            "target's tokens they guess; choose drafts with the target's tokenizer"
        )
    if first is None:
        device, dtype, draft_dtype = job.device, job.dtype, job.draft_dtype
        return load_pair(job.target, draft, device=device, dtype=dtype, draft_dtype=draft_dtype, report=note)
    if draft == LOOKUP:
        return replace(first, pair=replace(first.pair, draft=None, head=None))
    return with_draft(first, job.target, draft, draft_dtype=job.draft_dtype, report=note)


def guesses_at_once(pair: Pair) -> int | None:
    """Largest number of levels that the draft computes in one pass; None if each level takes a pass of its own."""
    if pair.head is None:
        return None
    deepest = passes_of(pair.head, 1, LayerStates(pair.head.target_layers)).deepest
    return None if deepest == sys.maxsize else deepest


def pass_s(engine: Engine, context: int) -> float:
    """Seconds of a draft pass of one row after `context` tokens. If the draft computes several levels in one pass, it
    is the pass that reads one token of text.
    """
    costs = engine.costs_of(context)
    return (costs.draft if guesses_at_once(engine.pair) is None else costs.catch_up).seconds(1)


def measured_costs(engines: Mapping[str, Engine], context: int) -> Costs:
    """Times of passes after `context` tokens on this machine."""
    first = next(iter(engines.values()))
    target = first.costs_of(context)
    return Costs(
        source="measured",
        device=first.pair.device,
        context=context,
        target_s={rows: (target.plain if rows == 1 else target.verify).seconds(rows) for rows in ROWS},
        draft_s={name: pass_s(engine, context) for name, engine in engines.items() if not engine.pair.looks_up},
        fixed_s=target.host.seconds(1),
    )


def least_costs(on: NamedDevice, target: ModelSize, drafts: Mapping[str, ModelSize], context: int) -> Costs:
    """Roofline costs with `context` tokens in the KV cache. Raises ConfigError if the size of the target is unknown."""
    cost = roofline(target, on.speed)
    if cost is None:
        raise ConfigError(f"--roofline needs the size of {target.name}, which is unknown; leave --roofline out")
    known = {name: found for name, size in drafts.items() if (found := roofline(size, on.speed))}
    return Costs(
        source="roofline",
        device=on.name,
        context=context,
        target_s={rows: float(cost.seconds(1, rows, context)) for rows in ROWS},
        draft_s={name: float(each.seconds(1, 1, context)) for name, each in known.items()},
        bytes_per_s=on.speed.bytes_per_s,
        flops_per_s=on.speed.flops_per_s,
    )


def model_size(name: str, device: torch.device) -> ModelSize:
    """Size of the model with this hub id, folder or GGUF file."""
    config = load_config(name)
    dtype: torch.dtype = getattr(config, "dtype", None) or torch.float32
    quantised = None if isinstance(config, GgufFile) else quantisation_of(display_name(name), config, device)
    work = work_of_config(config, dtype, quantised)
    shown = display_name(name)
    if isinstance(config, GgufFile):
        weights_bytes, row, precision = sum(config.tensors.values()), row_bytes(config), "GGUF"
    else:
        memory = memory_of(config, dtype, quantised)
        weights_bytes, row = memory.weights_bytes, memory.token_bytes
        precision = quantised.precision(dtype) if quantised else str(dtype).removeprefix("torch.")
    return ModelSize(
        name=shown,
        revision=_revision(name),
        dtype=precision,
        weights_bytes=weights_bytes,
        pass_bytes=work.weights_bytes if work else None,
        weights=work.weights if work else None,
        kv_bytes_per_token=row,
    )


def head_size(name: str, head: StatesReader, target: ModelSize, layers: int) -> ModelSize:
    """Size of a drafting head in the target's dtype. An MTP layer caches as much per token as one target layer."""
    output, body = _weights(head)
    width = getattr(torch, target.dtype, head.dtype).itemsize
    row = (target.kv_bytes_per_token or 0) / layers
    if isinstance(head, Head | BlockHead):
        one, two = (head.new_cache(count * _KV_ROWS).nbytes for count in (1, 2))
        row = (two - one) / head.dtype.itemsize * width / _KV_ROWS
    files = [] if name == MTP else weight_files(name)
    stored = sum(path.stat().st_size for path in files)
    return ModelSize(
        name=display_name(name),
        revision=_revision(name),
        dtype=target.dtype,
        weights_bytes=stored or body * width,
        pass_bytes=(output + body) * width,
        weights=output + body,
        kv_bytes_per_token=row or None,
    )


def _weights(head: StatesReader) -> tuple[int, int]:
    """Numbers of weights that a pass reads: in the output head (which may be the target's), and in all other layers."""
    if isinstance(head, HeadModule):
        tables = sum(weight.numel() for weight in head.embed_tokens.parameters())
        output = sum(weight.numel() for weight in head.lm_head.parameters())
        return output, sum(weight.numel() for weight in head.parameters()) - tables - output
    assert isinstance(head, MtpHead), "all other heads are modules"  # noqa: S101 - for mypy
    return head.output.weight.numel(), head.projection.numel() + head.layer.weights


def _revision(name: str) -> str:
    """Commit of a hub id in the cache; empty for a folder or a file."""
    folder = cached_folder(name) if is_hub_id(name) and not Path(name).exists() else None
    return folder.name if folder else ""


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
            engines, refused = loaded(job, note)
            pair = next(iter(engines.values())).pair
            texts = _encoded(job, pair.tokenizer, min(engine.pair.context for engine in engines.values()), note)
            context = round(fmean(len(prompt) for prompt, _ in texts.values())) + job.config.max_new_tokens // 2
            costs, device = partial(measured_costs, engines, context), pair.target.device
            request = _request(job, pair, tuple(engines))
            header = begun(log, request, device, costs, note, context=pair.context)
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
        **pair_names(pair) | {"draft_dtype": job.draft_dtype},
        seed=config.seed,
        drafts=drafts,
        temperature=config.sampling.temperature,
        top_k=config.sampling.top_k,
        top_p=config.sampling.top_p,
        max_new_tokens=config.max_new_tokens,
        chat=config.chat,
        texts=hashlib.sha256(texts).hexdigest(),
    )


def _steps(
    job: OnServer, engines: Mapping[str, Engine], texts: Texts, log: RecordLog[Header, Scored]
) -> Iterator[Progress]:
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
    size = model_size(job.target, pair.target.device)
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
        target=job.target,
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
        timed = dict(zip((name for name in job.drafts if name != LOOKUP), job.draft_s, strict=True))
        draft_s = {name: seconds for name, seconds in timed.items() if name in drafts}
        return Costs(source="given", target_s={1: job.step_s}, draft_s=draft_s)
    if job.roofline:
        sizes = {name: draft.size for name, draft in drafts.items() if draft.size}
        return least_costs(job.roofline, size, sizes, round(measured.context))
    return measured
