"""Supported servers: the names of their metrics, without `_total`, and the option that enables their metrics page.

A metrics page may use another prefix, with underscores for colons, such as Ray Serve's `ray_vllm_...`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

Names: TypeAlias = tuple[str, ...]
"""Names of counters, which are added to give one count."""


@dataclass(frozen=True)
class Kind:
    name: str
    title: str
    prefix: str
    generated: Names
    drafts: Names = ()
    """Counters of rounds; empty if rounds are counted by the first position of `drafted_at`."""
    drafted: Names = ()
    accepted: Names = ()
    accepted_at: str = ""
    """Counter of accepted tokens by draft position."""
    drafted_at: str = ""
    position: str = "position"
    """Label of the draft position, from 0."""
    length: str = ""
    """Gauge of the mean acceptance length, with the target's own token."""
    rate: str = ""
    """Gauge of accepted / drafted tokens."""
    speed: str = ""
    """Gauge of generated tokens per second."""
    running: str = ""
    """Gauge of requests that are being decoded."""
    waiting: str = ""
    """Gauge of requests that wait for their first step."""
    cache: str = ""
    """Gauge of the share of the KV cache that is in use."""
    engine_steps: Names = ()
    """Counters of the engine's steps; a step for several requests counts once."""
    latency: str = ""
    """Counter of the seconds between tokens, summed over all requests."""
    timed: Names = ()
    """Counters of the tokens whose times are added up in `latency`; empty if `generated` counts these tokens."""
    outputs: Names = ()
    """Counters of steps of single requests (one or several tokens each) whose times are added up in `latency`."""
    steps: str = ""
    """Gauge of draft passes per round. This and the next three gauges are 0 before the first round."""
    draft_tokens: str = ""
    """Gauge of positions verified per round, including that of the target's own token."""
    cap_length: str = ""
    """Gauge of the mean number of verified positions per round, which may be below `draft_tokens`."""
    block_length: str = ""
    """Gauge of the mean acceptance length if every draft were verified in full."""
    ranks: Names = ()
    """Labels of the processes of one engine, which all report the same gauges."""
    rounds_generate: bool = False
    """Whether all generated tokens come from counted rounds: then L-bar is generated tokens / rounds, and all but one
    token per round were drafted."""
    page: str = ""
    """Option that enables the metrics page; empty if the page is on by default."""
    model: str = ""
    """Label of the model's name."""
    speculation: str = ""
    """Option that starts the server with speculative decoding."""
    chain: str = ""
    """Option of the server for the number of tokens drafted in a round."""

    @property
    def speculative(self) -> Names:
        """Names of all metrics of speculation; a server without any of them has not drafted."""
        named = (*self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at, self.length, self.rate)
        return tuple(filter(None, named))

    @property
    def counters(self) -> Names:
        named = (*self.generated, *self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at)
        return tuple(filter(None, (*named, *self.engine_steps, self.latency, *self.timed, *self.outputs)))

    @property
    def gauges(self) -> Names:
        drafting = self.steps, self.draft_tokens, self.cap_length, self.block_length
        load = self.running, self.waiting, self.cache
        return tuple(filter(None, (self.length, self.rate, self.speed, *drafting, *load)))


VLLM = Kind(
    name="vllm",
    title="vLLM",
    prefix="vllm:",
    generated=("vllm:generation_tokens",),
    drafts=("vllm:spec_decode_num_drafts",),
    drafted=("vllm:spec_decode_num_draft_tokens",),
    accepted=("vllm:spec_decode_num_accepted_tokens",),
    accepted_at="vllm:spec_decode_num_accepted_tokens_per_pos",
    drafted_at="vllm:spec_decode_num_draft_tokens_per_pos",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    cache="vllm:kv_cache_usage_perc",
    engine_steps=("vllm:iteration_tokens_total_count",),
    latency="vllm:inter_token_latency_seconds_sum",
    outputs=("vllm:inter_token_latency_seconds_count",),
    model="model_name",
    speculation="--speculative-config",
    chain="num_speculative_tokens",
)
SGLANG = Kind(
    name="sglang",
    title="SGLang",
    prefix="sglang:",
    page="SGLang with --enable-metrics",
    generated=("sglang:generation_tokens",),
    drafts=("sglang:spec_verify_calls",),
    length="sglang:spec_accept_length",
    rate="sglang:spec_accept_rate",
    speed="sglang:gen_throughput",
    steps="sglang:spec_num_steps",
    draft_tokens="sglang:spec_num_draft_tokens",
    cap_length="sglang:spec_cap_length",
    block_length="sglang:spec_block_accept_length",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    cache="sglang:token_usage",
    latency="sglang:inter_token_latency_seconds_sum",
    timed=("sglang:inter_token_latency_seconds_count",),
    ranks=("tp_rank", "pp_rank", "moe_ep_rank"),
    rounds_generate=True,
    model="model_name",
    speculation="--speculative-algorithm",
    chain="--speculative-num-steps",
)
LLAMACPP = Kind(
    name="llamacpp",
    title="llama.cpp",
    prefix="llamacpp:",
    page="llama-server with --metrics",
    generated=("llamacpp:tokens_predicted",),
    drafts=("llamacpp:spec_decode_num_drafts",),
    drafted=("llamacpp:spec_decode_num_draft_tokens",),
    accepted=("llamacpp:spec_decode_num_accepted_tokens",),
    accepted_at="llamacpp:spec_decode_num_accepted_tokens_per_pos",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    engine_steps=("llamacpp:n_decode",),
    latency="llamacpp:tokens_predicted_seconds",
    speculation="--spec-type draft-simple (--model-draft alone loads a draft that is never used)",
    chain="--spec-draft-n-max",
)
TENSORRT_LLM = Kind(
    name="tensorrt_llm",
    title="TensorRT-LLM",
    prefix="trtllm_",
    page="trtllm-serve with return_perf_metrics in its configuration",
    generated=("trtllm_generation_tokens",),
    drafted=("trtllm_spec_decode_num_draft_tokens",),
    accepted=("trtllm_spec_decode_num_accepted_tokens",),
    accepted_at="trtllm_spec_decode_accepted_tokens",
    drafted_at="trtllm_spec_decode_drafted_tokens",
    position="token_position",
    length="trtllm_spec_decode_acceptance_length",
    running="trtllm_num_requests_running",
    waiting="trtllm_num_requests_waiting",
    cache="trtllm_kv_cache_utilization",
    latency="trtllm_time_per_output_token_seconds_sum",
    timed=("trtllm_time_per_output_token_seconds_count",),
    model="model_name",
    speculation="speculative_config:",
    chain="max_draft_len",
)
TGI = Kind(
    name="tgi",
    title="TGI",
    prefix="tgi_",
    generated=("tgi_request_skipped_tokens_sum", "tgi_request_skipped_tokens_count"),
    drafts=("tgi_request_skipped_tokens_count",),
    accepted=("tgi_request_skipped_tokens_sum",),
    running="tgi_batch_current_size",
    waiting="tgi_queue_size",
    latency="tgi_request_mean_time_per_token_duration_sum",
    timed=("tgi_request_mean_time_per_token_duration_count",),
    speculation="--speculate",
    chain="--speculate",
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (VLLM, SGLANG, LLAMACPP, TENSORRT_LLM, TGI)}


def recognised(lines: Sequence[str]) -> tuple[Kind, Sequence[str]] | None:
    """The kind of server whose metrics a page has, if possible with metrics of speculation; the page in its names."""
    pages = ((kind, _with_own_names(kind, lines)) for kind in KINDS.values())
    present = [(kind, page) for kind, page in pages if page is not None]
    return next(((kind, page) for kind, page in present if _has(page, kind.speculative)), next(iter(present), None))


def _has(lines: Sequence[str], beginnings: Names) -> bool:
    return any(line.startswith(beginnings) for line in lines)


def _with_own_names(kind: Kind, lines: Sequence[str]) -> Sequence[str] | None:
    """The page in the kind's names; None if it has no metric of this kind. Of several other prefixes, only the most
    frequent is replaced: others repeat it.
    """
    if _has(lines, tuple(mark + kind.prefix for mark in ("", "# TYPE ", "# HELP "))):
        return lines
    word, pattern = kind.prefix[:-1], _other_names(kind)
    found = {number: match for number, line in enumerate(lines) if word in line and (match := pattern.match(line))}
    if not found:
        return None
    prefix, _ = Counter(match["prefix"] for match in found.values()).most_common(1)[0]
    renamed = list(lines)
    for number, match in found.items():
        if match["prefix"] == prefix:
            renamed[number] = match["comment"] + kind.prefix + match["stem"] + lines[number][match.end() :]
    return renamed


@cache
def _other_names(kind: Kind) -> re.Pattern[str]:
    stems = sorted((name.removeprefix(kind.prefix) for name in (*kind.counters, *kind.gauges)), key=len, reverse=True)
    return re.compile(
        rf"(?P<comment>(?:# (?:TYPE|HELP) )?)(?P<prefix>(?:[a-zA-Z_:][\w:]*[_:])?{kind.prefix[:-1]}[_:])"
        rf"(?P<stem>{'|'.join(map(re.escape, stems))})(?=_total|_created|[{{\s]|$)"
    )
