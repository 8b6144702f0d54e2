"""Cost of capturing the CUDA graphs of method `auto`: time of each capture, and of all captures in the first text.

    python benchmarks/captures.py --shapes pythia-2.8b:pythia-70m --dtype float16 --tokens 1900

The round times that dynatui reports do not include captures, although the user has to wait for each capture. Random
tokens are decoded with random weights, as in `dynatui bench speed --shapes`, so method `auto` cannot be faster than
method `ar`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[1]))

if TYPE_CHECKING:
    from decoder.engine import Engine

PROMPT = 64


@dataclass(frozen=True)
class Capture:
    """Capture of one CUDA graph."""

    kind: str
    """Kind of the captured pass: "draft" or "verification"."""
    size: int
    """Size of the pass: for a draft, its number of levels; for a verification, its number of rows."""
    slots: int
    """Number of KV cache rows that attention reads."""
    seconds: float


@dataclass(frozen=True)
class Measurements:
    """Results of the measurement."""

    captures: list[Capture]
    reserved_bytes: int
    """Device memory reserved by all captured graphs together, in bytes."""
    first_s: float
    """Decode time of the first text of method `auto`, including captures but not prefill."""
    first_captures_s: float
    """Part of `first_s` that was spent in captures."""
    auto: list[float]
    """Speed of method `auto` on each text after the first, in tokens per second."""
    ar: list[float]
    """Speed of method `ar` on the same texts, in tokens per second; each text is decoded by both methods in turn."""


@dataclass(frozen=True)
class Size:
    """Size of a CUDA graph that method `auto` may need."""

    kind: str
    size: int
    slots: int
    length: int
    """Length of a text that needs this graph, in tokens."""


def sizes(tokens: int) -> Iterator[Size]:
    """Sizes of the CUDA graphs that method `auto` may need while a text grows to `tokens` tokens."""
    from decoder.draft.tree_size.plan import DEPTHS, SIZES  # noqa: PLC0415
    from decoder.methods.auto import Auto  # noqa: PLC0415 - slow, so after the options are checked
    from decoder.session.cuda_graph.static_shapes import beam, room, visible  # noqa: PLC0415

    rule, most = Auto().rule(), room(tokens)
    drafts = [("draft", depth, beam(rule, depth).rows) for depth in DEPTHS if depth <= rule.growth.deepest]
    for kind, size, rows in (*drafts, *(("verification", rows, rows - 1) for rows in (1, *SIZES))):
        lengths = {visible(length, rows, most): length for length in range(tokens, PROMPT - 1, -1)}
        yield from (Size(kind, size, read, length) for read, length in lengths.items())


def captured(engine: "Engine", tokens: int) -> list[Capture]:
    """Captures every graph of `sizes(tokens)` in one new slot."""
    from decoder.methods.auto import Auto  # noqa: PLC0415
    from decoder.session.cuda_graph.static_shapes import beam  # noqa: PLC0415
    from decoder.system.device import without_gradients  # noqa: PLC0415

    assert engine.slots is not None  # noqa: S101 - the caller has checked it
    rule, captures = Auto().rule(), list[Capture]()
    with without_gradients():
        slot = engine.slots.take(engine.pair, tokens)
        slot.begin([1, 2], rule)
        for capture_size in sizes(tokens):
            before_s = slot.capturing_s
            if capture_size.kind == "draft":
                slot.drafting(beam(rule, capture_size.size), capture_size.length)
            else:
                slot.verification(capture_size.size, capture_size.length, int(rule.growth.deepest))
            captures.append(
                Capture(capture_size.kind, capture_size.size, capture_size.slots, slot.capturing_s - before_s)
            )
    return captures


def measured(engine: "Engine", tokens: int, repeats: int, say: Callable[[str], object]) -> Measurements:
    """Captures all graphs and reports their times; then decodes texts of `tokens` tokens. The first text needs a
    new slot, so its time includes captures.
    """
    import torch  # noqa: PLC0415

    from decoder.bench.protocol import endless  # noqa: PLC0415
    from decoder.bench.shapes import random_prompt  # noqa: PLC0415
    from decoder.methods import METHODS  # noqa: PLC0415
    from decoder.methods.auto import Auto  # noqa: PLC0415
    from decoder.run.config import RunConfig  # noqa: PLC0415
    from decoder.system.device import Stopwatch  # noqa: PLC0415

    slots = engine.slots
    assert slots is not None  # noqa: S101 - the caller has checked it
    engine = endless(engine)
    config = RunConfig(max_new_tokens=tokens - PROMPT)
    prompt = random_prompt(engine.pair, PROMPT, config.max_new_tokens + Auto().d_max)
    on_gpu = engine.pair.target.device.type == "cuda"
    before = torch.cuda.memory_reserved() if on_gpu else 0
    captures = captured(engine, tokens)
    reserved = torch.cuda.memory_reserved() - before if on_gpu else 0
    say(by_kind(captures, reserved))

    def text(method: str) -> float:
        session, clock = METHODS[method].open(engine, prompt, config), Stopwatch(engine.pair.target.device)
        session.prefill()
        started = clock.now()
        while not session.step(()).finished:
            pass
        return clock.now() - started

    first_s = text("auto")
    slot = slots.take(engine.pair, tokens)
    slots.give_back(slot)
    first_captures_s = slot.capturing_s
    text("ar")
    turns = [(text("auto"), text("ar")) for _ in range(repeats)]
    auto, plain = ([config.max_new_tokens / seconds for seconds in speeds] for speeds in zip(*turns, strict=True))
    return Measurements(captures, reserved, first_s, first_captures_s, auto, plain)


def by_kind(captures: Sequence[Capture], reserved_bytes: int) -> str:
    """Table of capture times by kind of pass."""
    lines = [f"{'':<14} {'graphs':>6} {'s in all':>9} {'median ms':>10} {'longest ms':>11}"]
    for kind in dict.fromkeys(capture.kind for capture in captures):
        took = [capture.seconds for capture in captures if capture.kind == kind]
        row = f"{kind:<14} {len(took):>6} {sum(took):>9.2f} {1000 * median(took):>10.1f} {1000 * max(took):>11.1f}"
        lines.append(row)
    return "\n".join([*lines, f"device memory reserved for the graphs: {reserved_bytes / 1e9:.2f} GB"])


def texts(result: Measurements) -> str:
    """Sentence about the time of the first text and the speeds on later texts."""
    ratio = median(auto / plain for auto, plain in zip(result.auto, result.ar, strict=True))
    return (
        f"auto took {result.first_s:.2f} s for its first text, of which graph capture took "
        f"{result.first_captures_s:.2f} s\n"
        f"later texts, decoded by auto and ar in turns: auto {median(result.auto):.1f} tokens/s, "
        f"ar {median(result.ar):.1f} tokens/s; auto is {ratio:.3f} times as fast"
    )


def options() -> argparse.ArgumentParser:
    """Parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", type=lambda text: tuple(text.split(":")), default=("pythia-2.8b", "pythia-70m"))
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--tokens", type=int, default=1900, help=f"tokens of each text, including the {PROMPT} tokens of the prompt"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser


def main(command_line: Sequence[str] | None = None) -> int:
    """Measures and prints the results; returns 1 if rounds do not run on the device as CUDA graphs."""
    arguments = options().parse_args(command_line)
    from decoder.bench.shapes import random_pair  # noqa: PLC0415
    from decoder.run.decoding_path import decoding_path  # noqa: PLC0415
    from decoder.system.device import device_name  # noqa: PLC0415

    engine = random_pair(*arguments.shapes, device=arguments.device, dtype=arguments.dtype, report=_say)
    path, pair = decoding_path(engine), engine.pair
    pair_facts = {"target": pair.target_name, "draft": pair.draft_name, "device": pair.device, "dtype": pair.dtype}
    pair_facts["accelerator"] = device_name(pair.target.device) or "none"
    pair_facts |= {"path": path.name, "path_reason": path.reason}
    _say(", ".join(f"{name} {value}" for name, value in pair_facts.items()))
    if engine.slots is None or engine.slots.refused:
        _say("no CUDA graphs are captured, since the host runs each round itself; set --device to a CUDA device")
        return 1
    measurements = measured(engine, arguments.tokens, arguments.repeats, _say)
    _say(texts(measurements))
    if arguments.json:
        report: dict[str, Any] = {"about": pair_facts, **asdict(measurements)}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
