"""Estimate of the time of a round on a GPU, by part: operators counted on a fake device, times assumed costs.

    python benchmarks/estimate.py --shapes pythia-2.8b:pythia-70m --dtype float16 --tree 8x64 --context 256

Nothing is measured. The counts are exact for this code; all costs in `CARDS` and `ASSUMED` are assumptions, `ASSUMED`
first optimistic, then pessimistic ones. Triton kernels are assumed to be limited by the steps that a program takes in
sequence, which the kernels' modules count. Times are of CUDA graphs, without the host.
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from decoder.forward.families.model import Heads
from decoder.methods import METHODS
from decoder.run.config import RunConfig
from decoder.sampling.settings import Schedule
from decoder.system.device import DTYPES
from dynatui.lab.bench.rounds import Size, run_of
from tests.fake_cuda.shapes import Made, engine_of, without_values
from tests.fake_cuda.tensors import Launch

CARDS = {"H100": 3.35e12, "H200": 4.8e12}
"""Bytes per second of the card's memory, by its maker's figures."""
PROCESSORS = 132
"""Multiprocessors of both cards."""
THREADS = 2048
"""Threads that a multiprocessor runs at a time."""
FEW = 128
"""Threads of a program of Triton's usual 4 warps."""
NORMED, BY_PARTS = "normed_columns", "attend_by_parts"
"""Triton kernels whose time depends on the shapes of certain operands."""
IN_TURN = frozenset(
    {BY_PARTS, "exclude", "part_best", "best_of_parts", "choose_rows", "write_rows", "choose_nodes", "write_nodes"}
)
"""Triton kernels whose time is that of the steps that a program takes in sequence."""
PARTS = ("products", "attention", "top-k", "other")
KERNELS = {"sort": 4, "topk": 2, "argmax": 2, "scatter": 2, "index_copy": 2}
"""Number of kernels of each operator that launches several, by torch's source."""
ROUNDS = 4
"""Rounds until all graphs are captured."""


@dataclass(frozen=True)
class Costs:
    """Assumed costs, in microseconds where not said otherwise."""

    kernel: float
    """Shortest time of a kernel within a graph, with the gap after it."""
    product: float
    """Shortest time of a matrix product."""
    bandwidth: float
    """Share of the card's bandwidth that kernels reach."""
    l2: float
    """Bytes per microsecond that all multiprocessors together read from the L2 cache."""
    keys: float
    """Time in which a block of torch's attention reads 64 keys and values."""
    key: float
    """Time in which a program of `attend_by_parts` reads a key and its value. The pessimistic time is that of SGLang's
    kernel on an H100: with 16,000 tokens instead of 1,000, in 8 parts, 36 layers take 6.4 ms longer (sglang #21775).
    """
    block: float
    """Time in which a program reads a block of numbers and all its threads together reduce it."""
    selection: float
    """Time of one pass of a radix selection over at most 1024 numbers."""


ASSUMED = (
    Costs(kernel=1.5, product=2.6, bandwidth=0.88, l2=5.5e6, keys=0.55, key=0.03, block=0.17, selection=0.16),
    Costs(kernel=2.2, product=4.2, bandwidth=0.70, l2=4e6, keys=1.1, key=0.09, block=0.23, selection=0.32),
)


@dataclass(frozen=True)
class Given:
    """Properties of a round that decide the work of kernels, beside the shapes of their operands."""

    text: int = 0
    """Number of tokens before the round."""
    top_k: bool = False
    """Whether logits are truncated by top-k; `top_p` likewise."""
    top_p: bool = False


def part(launch: Launch) -> str:
    if launch.name in {"mm", "addmm", "addmm_", "bmm", NORMED}:
        return "products"
    if "attention" in launch.name or launch.name in {BY_PARTS, "merge_and_activate"}:
        return "attention"
    return "top-k" if launch.name in {"topk", "sort", "argmax", "max", "part_best", "best_of_parts"} else "other"


def keys_in_turn(launch: Launch, text: int) -> int:
    """Number of keys that a multiprocessor reads in sequence in `attend_by_parts`, over all its waves of programs; the
    slowest part decides, be it a part of the text or the pass itself.
    """
    from decoder.session.cuda_graph.kernels import tree_attention  # noqa: PLC0415 - Triton may be missing

    (count, *_), (heads, parts, queries, width) = launch.shapes[0], launch.shapes[5]
    shape = Heads(heads, queries // count, width, 0)
    divided = tree_attention.division(shape, count, text, PROCESSORS, launch.dtypes[0])
    resident = tree_attention.PROGRAMS if divided.tile == tree_attention.LEAST_TILE else 2
    waves = math.ceil(heads * parts * divided.blocks / (PROCESSORS * resident))
    steps = math.ceil(text / (parts - 1) / divided.step) * divided.step
    return waves * max(steps, math.ceil(count / divided.own_step) * divided.own_step)


def in_turn(launch: Launch, costs: Costs, given: Given) -> float:
    """Time of the steps that a multiprocessor takes in sequence in a Triton kernel, for usual rows of logits."""
    from decoder.session.cuda_graph.kernels import keep_level, pack_tree  # noqa: PLC0415 - as above
    from decoder.session.cuda_graph.kernels import searched_truncation as truncation  # noqa: PLC0415 - as above

    shapes, bits = launch.shapes, 8 * launch.dtypes[0].itemsize
    blocks: Mapping[str, Callable[[], int]] = {
        "exclude": lambda: truncation.blocks(shapes[0][1], bits, top_k=given.top_k, top_p=given.top_p)
        * math.ceil(shapes[0][0] / PROCESSORS),
        "part_best": lambda: math.ceil(math.prod(shapes[1]) * FEW / (PROCESSORS * THREADS)) * shapes[3][-1],
        "best_of_parts": lambda: shapes[2][-1],
        "choose_rows": lambda: keep_level.iterations(shapes[2][0])[0],
        "write_rows": lambda: keep_level.iterations(shapes[0][0])[1],
        "choose_nodes": lambda: pack_tree.iterations(shapes[5][0], shapes[1][0])[0],
        "write_nodes": lambda: pack_tree.iterations(shapes[0][0], shapes[6][0])[1],
    }
    by_parts = launch.name == BY_PARTS
    return keys_in_turn(launch, given.text) * costs.key if by_parts else blocks[launch.name]() * costs.block


def microseconds(launch: Launch, costs: Costs, bytes_per_s: float, given: Given) -> float:
    rate = costs.bandwidth * bytes_per_s / 1e6
    shortest = costs.kernel * KERNELS.get(launch.name, 1)
    read = sum(map(math.prod, _operands(launch, given.text))) * launch.dtypes[0].itemsize if launch.shapes else 0
    if launch.name in IN_TURN:
        return max(shortest + in_turn(launch, costs, given), read / rate)
    match part(launch):
        case "products":
            return max(costs.product, (read + launch.result_bytes) / rate, _l2_bytes(launch) / costs.l2)
        case "attention" if launch.name != "merge_and_activate":
            (_, heads, queries, _), keys = launch.shapes[0], launch.shapes[1][-2]
            waves = math.ceil(heads * math.ceil(queries / 64) / PROCESSORS)
            return waves * (costs.kernel + math.ceil(keys / 64) * costs.keys)
        case "top-k" if launch.name == "topk":
            size, rows = launch.shapes[0][-1], math.prod(launch.shapes[0][:-1])
            threads = min(1024, 32 * math.ceil(size / 32))
            waves = math.ceil(rows * threads / (PROCESSORS * THREADS))
            passes = 4 * launch.dtypes[0].itemsize
            return shortest + waves * passes * costs.selection * max(1, size / 1024)
        case _ if launch.name in {"index", "index_copy_", "index_put_", "embedding", "index_select"}:
            return shortest  # few rows of a large tensor
        case _:
            return max(shortest, (read + launch.result_bytes) / rate)


def _operands(launch: Launch, text: int) -> Sequence[tuple[int, ...]]:
    """Shapes of what an operator reads or writes, besides its result."""
    if launch.name == BY_PARTS:
        product, (kinds, heads, _, width), *_, means, _, _ = launch.shapes
        return product, (kinds, heads, text, width), means
    if launch.name == NORMED:
        rows, weight, _, columns = launch.shapes  # the bias is small
        return rows, weight, columns
    return launch.shapes


def _l2_bytes(launch: Launch) -> int:
    """Bytes that the programs of a normed product read, each of them all rows; 0 for torch's products."""
    if launch.name != NORMED:
        return 0
    from decoder.session.cuda_graph.kernels import normed_product  # noqa: PLC0415 - as above

    (count, size), weight, _, (_, width) = launch.shapes
    tile = max(16, 1 << (count - 1).bit_length())
    gated = math.prod(weight) > width * size
    columns = normed_product.columns_of(tile, width, PROCESSORS, launch.dtypes[0], gated=gated)
    return (math.ceil(width / columns) * count * size + math.prod(weight)) * launch.dtypes[0].itemsize


@dataclass(frozen=True)
class Trace:
    draft: Sequence[Launch]
    verify: Sequence[Launch]
    given: Given


def traced(arguments: argparse.Namespace) -> Trace:
    """Operators of a round with the given shapes, tree and sampling, after all graphs are captured."""
    size = Size(*arguments.tree)
    sampling = RunConfig(
        temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p, max_new_tokens=64
    )
    method, config = run_of(size, sampling)
    prompt = [1] * arguments.context
    target, draft = arguments.shapes
    with without_values(Made(size.depth, size.rows)) as device:
        engine = engine_of(target, draft, DTYPES[arguments.dtype], kernels=arguments.kernels)
        engine = engine.sampled(0, Schedule(config.sampling))
        session = METHODS[method].open(engine, prompt, config)
        session.prefill()
        for _ in range(ROUNDS):
            device.clear()
            session.step(())
        session.close()
        # In a round, the next draft is queued first, and its verification after the host has waited.
        drafting, verification = (graph.launches for graph in device.replayed)
    truncates = config.sampling.truncates
    given = Given(arguments.context, truncates and arguments.top_k > 0, truncates and arguments.top_p < 1)
    return Trace(drafting, [*verification, *device.launches], given)


def page(trace: Trace) -> str:
    """Table of operators, kernels and estimated times by part, in milliseconds."""
    heading = f"{'':<18} {'operators':>9} {'kernels':>8}" + "".join(f" {name + ', ms':>13}" for name in CARDS)
    rows = [
        _row(f"{name}: {each}", [launch for launch in launches if part(launch) == each], trace.given)
        for name, launches in (("draft", trace.draft), ("verify", trace.verify))
        for each in PARTS
    ]
    return "\n".join([heading, *rows, _row("round", [*trace.draft, *trace.verify], trace.given)])


def _row(name: str, launches: Sequence[Launch], given: Given) -> str:
    kernels = sum(KERNELS.get(launch.name, 1) for launch in launches)
    row = f"{name:<18} {len(launches):>9} {kernels:>8}"
    for bytes_per_s in CARDS.values():
        low, high = (
            sum(microseconds(each, costs, bytes_per_s, given) for each in launches) / 1000 for costs in ASSUMED
        )
        row += f" {f'{low:.2f} to {high:.2f}':>13}"
    return row


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--shapes",
        type=lambda text: tuple(text.split(":")),
        default=("pythia-2.8b", "pythia-70m"),
        metavar="TARGET:DRAFT",
        help="names of published shapes; DRAFT may be `head`, for an EAGLE-3 head",
    )
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--tree", type=lambda text: tuple(map(int, text.split("x"))), default=(8, 64))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--kernels", action="store_true", help="with all Triton kernels; needs Triton")
    sys.stdout.write(f"{page(traced(parser.parse_args(command_line)))}\nestimates; nothing was measured\n")


if __name__ == "__main__":
    main()
