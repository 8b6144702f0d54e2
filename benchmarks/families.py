"""Times and cache memory of models with windows, latent attention or states, relative to models with full attention.

    OMP_NUM_THREADS=1 python benchmarks/families.py --output DIR

This command makes random models of equal size, reads a text with each model, and measures passes over one row, over a
chain and over a tree, and the commits after the chain and the tree. Each repeat measures all models once, in random
order, so that ratios compare times that were measured close together; the time that the thread waited for a processor
does not count. DIR contains report.md and the log, from which the same command resumes. Everything is computed on a
CPU, in float32.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import truediv
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import say
from decoder.analysis.interval import Interval
from decoder.errors import DecoderError
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import cache_bytes, windows_of
from decoder.system.device import ComputingClock, set_up
from decoder.system.whole_files import made_folder, write_whole
from decoder.tree import TokenTree
from dynatui.lab.bench import Progress, interrupted
from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, begun, opened
from dynatui.lab.frame import estimate
from dynatui.lab.tables import Cell, Column, Spec, Table, of_rows, section

TOKENS, REPEATS, SEED = (256, 4096), 20, 0
COMMAND = "OMP_NUM_THREADS=1 python benchmarks/families.py --output DIR"
CPU = torch.device("cpu")
INTERRUPTED = 130

LAYERS = 12
SHAPE: dict[str, Any] = {
    "vocab_size": 16384, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": LAYERS,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192,
    "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 32, "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64, "first_k_dense_replace": LAYERS,
}  # fmt: skip
DELTA: dict[str, Any] = {
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
    "intermediate_size": 1360,
}  # fmt: skip
SCAN: dict[str, Any] = {"num_heads": 16, "head_dim": 64, "n_groups": 1, "state_size": 128, "num_hidden_layers": 22}
BOTH: dict[str, Any] = {
    "mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
    "intermediate_size": 936,
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    name: str
    family: str
    config: Mapping[str, Any]
    beside: str = "Llama"
    """Name of the full-attention model with which this model is compared; both models are native, or neither is."""
    native: bool = False
    """Whether the engine's native code runs the model; if False, the model's transformers module runs it."""

    def configuration(self) -> Any:
        return AutoConfig.for_model(self.family, **self.config)


KINDS = (
    Kind("Llama, native", "llama", SHAPE, beside="Llama, native", native=True),
    Kind("Llama", "llama", SHAPE),
    Kind("Mistral, windows of 256", "mistral", SHAPE | {"sliding_window": 256}),
    Kind("Gemma 3, windows of 256 in 5 of 6 layers", "gemma3_text",
         SHAPE | {"sliding_window": 256, "query_pre_attn_scalar": 64}),
    Kind("DeepSeek V3, latent attention", "deepseek_v3", SHAPE | LATENT),
    Kind("Qwen 3.5, gated delta rule in 3 of 4 layers", "qwen3_5_text", SHAPE | DELTA),
    Kind("Falcon-H1, attention and Mamba 2 in each layer", "falcon_h1", SHAPE | BOTH),
    Kind("Mamba 2, no attention", "mamba2", SHAPE | SCAN),
)  # fmt: skip
"""Models of about 54 million weights. Models with experts are left out: experts change neither attention nor cache."""


def tree_of(*parents: int) -> TokenTree:
    """Tree with these parents, of nodes without probabilities; the root has the parent -1."""
    return TokenTree.of([*range(1, 1 + len(parents))], [*parents], [0.0] * len(parents))


ROW, CHAIN, TREE = tree_of(-1), tree_of(-1, 0, 1, 2, 3), tree_of(-1, 0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 8, 8, 10, 12)
"""Nodes of each measured pass."""
WITHIN = (0, 1, 4)
"""Nodes of a path whose last node is not a leaf of the tree."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """Times and memory of one model in one repeat, after a text."""

    model: str
    tokens: int
    repeat: int
    row_s: float
    chain_s: float
    tree_s: float
    kept_s: float
    """Seconds of committing the whole chain."""
    replayed_s: float
    """Seconds of committing a path that ends within the tree; the states of the path's rows are computed again."""
    cache_bytes: int
    """Allocated bytes of the cache: rows of keys and values, and states."""
    ring_bytes: int | None
    """Bytes of keys and values if layers with windows kept only their windows; None if no layer has a window."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    models: dict[str, dict[str, Any]]
    """Configurations by name of the model."""


class Size(msgspec.Struct, frozen=True, kw_only=True, tag="size"):
    model: str
    weights: int


Header: TypeAlias = LogHeader[Request, None]
Log: TypeAlias = RecordLog[Header, Turn | Size]
FORMAT: LogFormat[Header, Turn | Size] = LogFormat(
    msgspec.json.Decoder(Header | Turn | Size), 1, "set --output to another folder"
)


@dataclass(frozen=True)
class Reader:
    kind: Kind
    model: LanguageModel
    cache: KvCache
    tokens: int
    clock: ComputingClock

    def turn(self, repeat: int) -> Turn:
        """Measures each pass and commit once; afterwards the cache again contains only the text."""
        row_s, _ = self._round(ROW, (0,))
        chain_s, kept_s = self._round(CHAIN, range(len(CHAIN)))
        tree_s, replayed_s = self._round(TREE, WITHIN)
        config = self.kind.configuration()
        ring = cache_bytes(config, self.cache.capacity, torch.float32.itemsize)[1] if windows_of(config).sizes else None
        return Turn(
            model=self.kind.name,
            tokens=self.tokens,
            repeat=repeat,
            row_s=row_s,
            chain_s=chain_s,
            tree_s=tree_s,
            kept_s=kept_s,
            replayed_s=replayed_s,
            cache_bytes=self.cache.nbytes,
            ring_bytes=ring,
        )

    @torch.inference_mode()
    def _round(self, tree: TokenTree, path: Sequence[int]) -> tuple[float, float]:
        """Seconds of a pass over a tree, until the most probable token after each node is known, and seconds of the
        commit of `path`.
        """
        positions, mask = [self.tokens + depth for depth in tree.depths], tree.visible()
        start = self.clock.now()
        self.model.forward(self.cache, tree.tokens, positions, mask).argmax(-1).tolist()
        passed = self.clock.now()
        self.cache.keep([self.tokens + node for node in path])
        committed = self.clock.now()
        # The rows after the text are dropped. The states still include `path`, but this does not affect times.
        self.cache.assume(self.tokens)
        return passed - start, committed - passed


def made(kinds: Sequence[Kind]) -> dict[str, LanguageModel]:
    """Random models by name; models of equal configuration share their weights."""
    modules: dict[str, Any] = {}
    models: dict[str, LanguageModel] = {}
    for kind in kinds:
        torch.manual_seed(SEED)
        named = f"{kind.family} {kind.config}"
        if named not in modules:
            modules[named] = AutoModelForCausalLM.from_config(kind.configuration(), dtype=torch.float32).eval()
        models[kind.name] = LanguageModel.of_module(modules[named], kind.name)
        if not kind.native:
            models[kind.name].run_by_module()
    return models


@torch.inference_mode()
def reader(kind: Kind, model: LanguageModel, tokens: int) -> Reader:
    """The model after it has read a random text and run its first passes, which are slower than all later passes."""
    text = torch.randint(model.width, (tokens,), generator=torch.Generator().manual_seed(SEED)).tolist()
    cache = model.new_cache(tokens + len(TREE))
    model.read(cache, text)
    found = Reader(kind, model, cache, tokens, ComputingClock(CPU))
    found.turn(0)
    return found


def measured(log: Log, kinds: Sequence[Kind], texts: Sequence[int], repeats: int) -> Iterator[Progress]:
    """Adds the missing measurements to the log, text by text."""
    models: dict[str, LanguageModel] = {}
    count = len(texts) * repeats * len(kinds)
    done = {(turn.model, turn.tokens, turn.repeat) for turn in log.of(Turn)}
    for tokens in texts:
        turns = [
            (kind, repeat)
            for repeat in range(repeats)
            for kind in Random(f"{SEED} {tokens} {repeat}").sample(kinds, len(kinds))
            if (kind.name, tokens, repeat) not in done
        ]
        if not turns:
            continue
        if not models:
            yield Progress("making the models", len(done) / count)
            models = made(kinds)
            known = {size.model for size in log.of(Size)}
            for name in models.keys() - known:
                log.add(Size(model=name, weights=models[name].hf.module.num_parameters()))
        readers: dict[str, Reader] = {}
        for kind in kinds:
            yield Progress(f"{kind.name} reads {tokens} tokens", len(done) / count)
            readers[kind.name] = reader(kind, models[kind.name], tokens)
        gc.collect()
        for kind, repeat in turns:
            log.add(readers[kind.name].turn(repeat))
            done.add((kind.name, tokens, repeat))
            yield Progress(f"{len(done)} of {count} turns", len(done) / count)


def report(machine: Machine, log: Log, kinds: Sequence[Kind]) -> str:
    turns = log.of(Turn)
    texts = sorted({turn.tokens for turn in turns})
    threads = f"{machine.threads} thread{'s' * (machine.threads > 1)} of {machine.processor}"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items() if name != "dynatui")
    about = (
        f"Random models in float32. Times are medians of {len({turn.repeat for turn in turns})} repeats, in "
        "milliseconds. A ratio divides the figure of a model by the figure of the Llama model, or for a native model, "
        "by that of the native Llama model. A ratio of times is the median of the ratios in all repeats, with its 95 % "
        "bootstrap interval. The chain has 5 rows, and all of them are committed. The tree has 16 rows on 6 paths, and "
        "3 rows are committed. The path of these rows ends above a leaf, so states are computed again."
    )
    tables = [*(times(turns, kinds, tokens) for tokens in texts), memory(log, kinds, texts)]
    parts = ["# Families", f"`{COMMAND}`, {threads}, {versions}.", about]
    return "\n\n".join([*parts, *(part for table in tables for part in section(table) if part)]) + "\n"


def times(turns: Sequence[Turn], kinds: Sequence[Kind], tokens: int) -> Table:
    def of(kind: str, what: str) -> list[float]:
        own = {turn.repeat: getattr(turn, what) for turn in turns if (turn.model, turn.tokens) == (kind, tokens)}
        return [own[repeat] for repeat in sorted(own)]

    def median_ms(what: str, kind: Kind) -> Cell:
        found = estimate([of(kind.name, what)], SEED)
        return found and found.value * 1000

    def ratio(what: str, kind: Kind) -> Interval | None:
        return estimate([map(truediv, of(kind.name, what), of(kind.beside, what))], SEED)

    columns: list[Spec[Kind]] = [(Column("model"), lambda kind: kind.name)]
    for title, what in (("1 row", "row_s"), ("chain", "chain_s"), ("tree", "tree_s")):
        columns.append((Column(title, "number", 1), partial(median_ms, what)))
        columns.append((Column("ratio", "measured", 2), partial(ratio, what)))
    for title, what in (("commit, chain", "kept_s"), ("commit, tree", "replayed_s")):
        columns.append((Column(title, "number", 2), partial(median_ms, what)))
    return of_rows(columns, kinds, title=f"Times after {tokens} tokens")


def memory(log: Log, kinds: Sequence[Kind], texts: Sequence[int]) -> Table:
    """Table with the number of weights and the cache memory of each model, one row per model."""
    weights = {size.model: size.weights for size in log.of(Size)}
    turns = {(turn.model, turn.tokens): turn for turn in log.of(Turn)}

    def cache(tokens: int, kind: Kind) -> Cell:
        turn = turns.get((kind.name, tokens))
        return turn.cache_bytes / 1e6 if turn else None

    def ring(tokens: int, kind: Kind) -> Cell:
        turn = turns.get((kind.name, tokens))
        return turn.ring_bytes / 1e6 if turn and turn.ring_bytes else None

    def ratio(tokens: int, kind: Kind) -> Cell:
        own, full = (turns.get((name, tokens)) for name in (kind.name, kind.beside))
        return own.cache_bytes / full.cache_bytes if own and full else None

    columns: list[Spec[Kind]] = [
        (Column("model"), lambda kind: kind.name),
        (Column("weights, millions", "number", 1), lambda kind: weights.get(kind.name, 0) / 1e6),
    ]
    for tokens in texts:
        columns += [
            (Column(f"cache after {tokens} tokens", "number", 1), partial(cache, tokens)),
            (Column("ratio", "number", 2), partial(ratio, tokens)),
            (Column("with ring buffers", "number", 1), partial(ring, tokens)),
        ]
    return of_rows(columns, kinds, title="Memory of caches, in MB")


def main(command_line: Sequence[str] | None = None, kinds: Sequence[Kind] = KINDS) -> int:
    """Adds missing measurements and writes the report; returns 0, 130 if interrupted, 2 if the run cannot start."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder of the log, from which a later run resumes")
    parser.add_argument("--tokens", metavar="N,N", type=_numbers, default=TOKENS, help="lengths of the texts in tokens")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="number of measurements of each model after each text"
    )
    arguments = parser.parse_args(command_line)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    set_up(CPU, torch.float32)
    request = Request(models={kind.name: {"family": kind.family, **kind.config} for kind in kinds})
    count = len(kinds) * len(arguments.tokens) * arguments.repeats
    try:
        made_folder(arguments.output)
        with opened(arguments.output / "results.jsonl", FORMAT) as log:
            header = begun(log, request, CPU, lambda: None, complete=len(log.of(Turn)) >= count)
            stopped = interrupted(_said(measured(log, kinds, arguments.tokens, arguments.repeats)))
            write_whole(arguments.output / "report.md", report(header.machine, log, kinds).encode())
    except DecoderError as error:
        say(f"families.py: {error}")
        return 2
    say(f"wrote {arguments.output / 'report.md'}")
    return INTERRUPTED if stopped else 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _said(steps: Iterator[Progress]) -> Iterator[Progress]:
    for step in steps:
        say(f"{step.share:4.0%} {step.line}")
        yield step


if __name__ == "__main__":
    sys.exit(main())
