"""Contenders that decode with other libraries: transformers' `generate` in several settings, and llama.cpp's server."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.engine import Engine
from decoder.errors import ModelError, about, quoted, require, shortened
from decoder.forward.llama_cpp.library import library, require_package
from decoder.models.gguf_file import SUFFIX, check_gguf, gguf_file, is_gguf
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from decoder.session.hf_assisted import as_wide_as, drawn_by
from decoder.session.protocol import Outcome
from decoder.system.device import Stopwatch
from decoder.tree import TokenTree
from dynatui.lab.bench.contenders import PROMPT_LOOKUP, Contender, DecodedText, as_round, tallied

CACHES = ("dynamic", "static")
ASSISTED: dict[str, dict[str, float]] = {
    "20/.4": {},
    "3/0": {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.0},
    "5/.4": {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.4},
}
"""Settings of assisted generation by name. In the name `5/.4`, 5 is the number of drafted tokens, and .4 is the
confidence below which drafting stops. The first setting is transformers' default.
"""
LOOKED_UP = (5, 10)
"""Maximum numbers of tokens that prompt lookup copies after a match of one or two tokens."""
_HIDDEN = frozenset({"assistant_model", "prompt_lookup_num_tokens"})
"""Arguments that make `generate` draft tokens; with any of these arguments, the number of draft passes is unknown."""


class _Bursts(BaseStreamer):
    """Streamer that records each burst of tokens with the time at which the burst arrived."""

    def __init__(self) -> None:
        self.bursts: list[tuple[list[int], float]] = []
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_seen:
            self.bursts.append((value.flatten().tolist(), time.perf_counter()))
        self._prompt_seen = True

    def end(self) -> None:
        pass


def baselines(pair: Pair, config: RunConfig) -> list[Contender]:
    """Contenders of transformers, one per setting; above temperature 0, their random numbers are not those of `ar`."""
    assistant = as_wide_as(pair.draft, pair.target.width) if pair.draft and not pair.translation else None

    def made(group: str, name: object, settings: Mapping[str, Any], run: Callable[..., DecodedText]) -> Contender:
        return Contender(f"{group} {name}", group, partial(run, config=config, **settings), settings, foreign=True)

    assisted = partial(_assisted, assistant=assistant)
    return [
        *(made("generate", cache, {"cache_implementation": cache}, _generated) for cache in CACHES),
        *(made("assisted", *each, assisted) for each in ASSISTED.items() if assistant is not None),
        *(made(PROMPT_LOOKUP, count, {"prompt_lookup_num_tokens": count}, _generated) for count in LOOKED_UP),
    ]


@torch.inference_mode()
def _generated(engine: Engine, prompt_ids: Sequence[int], *, config: RunConfig, **settings: Any) -> DecodedText:
    pair = engine.pair
    ids = torch.tensor([list(prompt_ids)], device=pair.target.device)
    clock, streamer = Stopwatch(pair.target.device), _Bursts()
    started = clock.now()
    pair.target.hf.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        **drawn_by(config.sampling, config.seed),
        max_new_tokens=config.max_new_tokens,
        eos_token_id=sorted(pair.eos) or None,
        streamer=streamer,
        **settings,
    )
    ended = clock.now()
    first = streamer.bursts[0][1]
    ends = [*(at - first for _, at in streamer.bursts[:-1]), ended - first if len(streamer.bursts) > 1 else 0.0]
    drafts, root = None if _HIDDEN & settings.keys() else 0, TokenTree([prompt_ids[-1]])
    rounds = [
        as_round("hf", number, Outcome(root, committed=tokens, target_forwards=1, draft_forwards=drafts), t)
        for number, ((tokens, _), t) in enumerate(zip(streamer.bursts, ends, strict=True))
    ]
    return DecodedText(tallied(first - started, rounds), rounds)


def _assisted(
    engine: Engine, prompt_ids: Sequence[int], *, config: RunConfig, assistant: Any, **drafting: float
) -> DecodedText:
    """Decodes with `drafting` in the assistant's generation config, from which transformers reads these settings."""
    before = assistant.generation_config
    assistant.generation_config = copy.deepcopy(before)
    assistant.generation_config.update(**drafting)
    try:
        return _generated(engine, prompt_ids, config=config, assistant_model=assistant)
    finally:
        assistant.generation_config = before


NAME = "llama.cpp"
DRAFTED = (1, 2, 3, 5)
"""Maximum numbers of drafted tokens per round; llama.cpp's default is 3."""
SILENT = -1
"""Verbosity at which the server writes nothing."""
MS = 1e-3


def llama_cpp_baselines(pair: Pair, config: RunConfig, target: str | None, draft: str | None) -> list[Contender]:
    """Contenders of llama.cpp's server; none if `target` is not a GGUF file or if decoding is not greedy.

    Speculative contenders are included only if `draft` is also a GGUF file and the pair needs no token translation.
    """
    if target is None or not is_gguf(target) or config.sampling.temperature:
        return []
    drafts = DRAFTED if draft is not None and is_gguf(draft) and not pair.translation else ()
    return [
        Contender(
            f"{NAME} {count}" if count else NAME,
            NAME,
            partial(_decoded, config=config, server=_Server(target, draft if count else None, count)),
            {"file": Path(target).name, "precision": f"GGUF {gguf_file(target).quantisation}", "n_max": count},
            foreign=True,
        )
        for count in (0, *drafts)
    ]


def require_measurable(file: str, target: str | None, config: RunConfig) -> None:
    """Raises ConfigError if llama.cpp cannot decode the GGUF file as a further baseline; reads only the metadata."""
    with about("llama_cpp"):
        require(
            target is None or not is_gguf(target),
            f"--llama-cpp has no effect beside the target {shortened(target)}, a GGUF file, which --baselines measures "
            "in llama.cpp itself; leave --llama-cpp out",
        )
        require(
            not config.sampling.temperature,
            f"--llama-cpp measures greedy decoding, but --temperature is {config.sampling.temperature:g}; leave "
            "--llama-cpp or --temperature out",
        )
        require_package()
        check_gguf(shortened(file), gguf_file(file))
        require(
            is_gguf(file),
            f"--llama-cpp is {quoted(file)}, but names of GGUF files end with {SUFFIX}; rename the file",
        )


def require_vocabulary(file: str, pair: Pair) -> None:
    """Raises ConfigError if the GGUF file has more or fewer tokens than the pair's target."""
    known, width = len(gguf_file(file).tokens), pair.target.width
    require(
        known == width,
        f"--llama-cpp is {quoted(file)}, whose vocabulary has {known} tokens, but {pair.target.name} has {width}; give "
        "a GGUF file of the target's weights",
        "llama_cpp",
    )


class _Server:
    """llama.cpp's server, which decodes one text at a time; the first text starts the server."""

    def __init__(self, target: str, draft: str | None, drafted: int) -> None:
        self._target, self._draft, self._drafted = target, draft, drafted

    def complete(self, prompt_ids: Sequence[int], most_tokens: int, **options: Any) -> Any:
        request = {"prompt": list(prompt_ids), "n_predict": most_tokens, "cache_prompt": False, "top_k": 1}
        return self._started.handle_completions(request | {"samplers": ["top_k"]} | options)

    @cached_property
    def _started(self) -> Any:
        bindings = library()
        import xllamacpp  # noqa: PLC0415 - of the extra `gguf`

        params = xllamacpp.CommonParams()
        params.verbosity, params.warmup, params.fit_params = SILENT, False, False
        params.n_parallel, params.n_ctx = 1, gguf_file(self._target).size("context_length") or 0
        params.model.path = self._target
        # Flash attention is off, as in the engine's own contexts; on a CPU, small models are faster without it.
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        models = [params]
        if self._draft:
            drafting = params.speculative.draft
            params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            drafting.mparams.path, drafting.n_max = self._draft, self._drafted
            models.append(drafting)
        for model, file in zip(models, (self._target, self._draft), strict=False):
            model.cpuparams.n_threads = model.cpuparams_batch.n_threads = torch.get_num_threads()
            if file and gguf_file(file).in_float32:
                model.cache_type_k = model.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        server = xllamacpp.Server(params)
        # Creating the server replaces the engine's handler of llama.cpp's log messages; `listen` installs it again.
        bindings.listen()
        return server


def _decoded(_: Engine, prompt_ids: Sequence[int], *, config: RunConfig, server: _Server) -> DecodedText:
    timed = server.complete(prompt_ids, config.max_new_tokens)
    # The server returns token ids only along with log-probabilities, which take time to compute. So a second call
    # requests the token ids, and only the first call is timed.
    named = server.complete(prompt_ids, config.max_new_tokens, logprobs=1)["choices"][0]
    if named["text"] != timed["choices"][0]["text"]:
        raise ModelError(
            "llama.cpp's server wrote two different greedy texts after one prompt, so the server cannot be timed"
        )
    tokens, times = [token["id"] for token in named["logprobs"]["content"]], timed["timings"]
    accepted = times.get("draft_n_accepted", 0)
    return DecodedText(
        Tally(
            prefill_s=times["prompt_ms"] * MS,
            rounds=len(tokens) - accepted,
            drafted=times.get("draft_n", 0),
            accepted=accepted,
            timed_tokens=len(tokens) - 1,
            target_forwards=len(tokens) - accepted,
            draft_forwards=None,
            decode_s=times["predicted_ms"] * MS,
            draft_s=None,
            verify_s=None,
            commit_s=None,
            knows_tree=False,
            log=TokenLog().plus(tokens),
        )
    )
