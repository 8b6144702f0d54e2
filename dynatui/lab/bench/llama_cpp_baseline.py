"""Contenders in which llama.cpp's server, called without HTTP, decodes greedily, with or without a draft.

The engine is not used. The time of a text is the time that the server reports. As with transformers' baselines, the
prefill ends with the first token, and this token does not count in tokens/s.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.engine import Engine
from decoder.errors import ModelError, about, quoted, require, shortened
from decoder.forward.llama_cpp.library import library, require_package
from decoder.models.gguf.file import SUFFIX, gguf_file, is_gguf
from decoder.models.gguf.limits import check_gguf
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from dynatui.lab.bench.contenders import Contender, Trial

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
            functools.partial(_decoded, config=config, server=_Server(target, draft if count else None, count)),
            {"file": Path(target).name, "precision": f"GGUF {gguf_file(target).quantisation}", "n_max": count},
            foreign=True,
        )
        for count in (0, *drafts)
    ]


def require_measurable(file: str, target: str | None, config: RunConfig) -> None:
    """Checks that plain decoding of a GGUF file can be measured beside the target; reads only the file's metadata.

    Raises:
        ConfigError: The file or llama.cpp's package is missing, `target` is a GGUF file, or decoding is not greedy.
    """
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
    """llama.cpp's server, which decodes one text at a time; it is started when the first text is decoded."""

    def __init__(self, target: str, draft: str | None, drafted: int) -> None:
        self._target, self._draft, self._drafted = target, draft, drafted

    def complete(self, prompt_ids: Sequence[int], most_tokens: int, **options: Any) -> Any:
        request = {"prompt": list(prompt_ids), "n_predict": most_tokens, "cache_prompt": False, "top_k": 1}
        return self._started.handle_completions(request | {"samplers": ["top_k"]} | options)

    @functools.cached_property
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
        # Creating the server replaces our handler of llama.cpp's log messages, so the handler is installed again.
        bindings.listen()
        return server


def _decoded(_: Engine, prompt_ids: Sequence[int], *, config: RunConfig, server: _Server) -> Trial:
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
    return Trial(
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
