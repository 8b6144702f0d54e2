"""Stage that times the attention kernels of a layer, by number of parts, warps and pipeline stages.

The kernels have these numbers as constants, chosen by compiled code and by figures of other engines.
"""

from dataclasses import replace
from itertools import product
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.stages.worker import Work
from decoder.errors import first_line
from decoder.forward.families.model import Heads, LayerSlots
from decoder.session.cuda_graph.kernels import tree_attention
from decoder.system.device import Graphs, Mark, multiprocessors_of, without_gradients

SHAPES = {
    "Pythia 2.8B": (Heads(32, 1, 80, 20), torch.float16),
    "Llama 3.1 8B": (Heads(8, 4, 128, 128), torch.bfloat16),
}
ROWS = 1, 8, 64
VARIANTS = (None, *product((4, 8, 16, 32, 64), (4, 8), (1, 2, 3)))
"""Numbers of parts, warps and pipeline stages; None: as the kernels choose them."""
LAYERS, REPLAYS = 8, 10
"""Layers of a graph, with keys and values of their own, so that these do not stay in the cache; and timed replays."""


def attention(work: Work) -> None:
    """Time of a layer's attention in us, for each shape, text length and number of rows; lines tell the fastest."""
    with resolve_name(work.setting.launches)():
        for (name, (heads, dtype)), text, rows in product(SHAPES.items(), work.setting.long_contexts, ROWS):
            given = _given(heads, dtype, text, rows)
            found, failed = dict[str, float](), dict[str, str]()
            for variant in VARIANTS:
                name_of = "{} parts, {} warps, {} stages".format(*variant) if variant else "as chosen"
                try:
                    found[name_of] = _us_a_layer(given, heads, variant)
                except Exception as error:  # noqa: BLE001 - a variant may need more registers or memory than there are
                    failed[name_of] = first_line(error)
            fastest = sorted(found, key=lambda variant: found[variant])[:1]
            times = "; ".join(f"{each}: {found[each]:.1f} us" for each in (*fastest, "as chosen") if each in found)
            line = f"{name}, {text} tokens, {rows} rows: {times or 'every variant failed'}"
            work.note(line, us_a_layer=found, failed=failed)


def _given(heads: Heads, dtype: torch.dtype, text: int, rows: int) -> tuple[torch.Tensor, Any]:
    """Product of a layer, and the rest of a pass of `rows` rows after `text` tokens."""
    device, visible = torch.device("cuda"), -(-(text + rows) // 256) * 256
    columns = (heads.groups + 2) * heads.heads * heads.width
    store = torch.randn(LAYERS, 2, heads.heads, visible + 256, heads.width, device=device, dtype=dtype)
    slots = torch.arange(text, text + rows, device=device)
    hidden = torch.arange(visible, device=device) >= text + rows
    bias = torch.zeros(rows, visible, device=device, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)
    rotation = torch.ones(rows, 1, 1, heads.rotated // 2, dtype=torch.complex64, device=device)
    new, values = [LayerSlots(store, layer, slots) for layer in range(LAYERS)], store[:, 1, :, :visible].unbind(0)
    given = SimpleNamespace(new=new, biases=[bias] * LAYERS, rotation=rotation, values=values)
    return torch.randn(rows, columns, device=device, dtype=dtype), given


def _us_a_layer(given: tuple[torch.Tensor, Any], heads: Heads, variant: tuple[int, int, int] | None) -> float:
    """Time of a layer's attention in us, in a graph of `LAYERS` layers."""
    rows, others = given
    device, division = rows.device, tree_attention.division

    def layers() -> None:
        for layer in range(LAYERS):
            tree_attention.attend(rows, 0, heads, others, layer, None, multiprocessors_of(device))

    changed: dict[str, Any] = {}
    if variant:
        parts, warps, changed["STAGES"] = variant
        changed["division"] = lambda *given: replace(division(*given), parts=parts)
        changed["launch"] = lambda *_: {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
    with patch.dict(vars(tree_attention), changed), without_gradients():
        replay = Graphs(device).capture(layers, lambda: None)
        replay()
        begun = Mark(device)
        for _ in range(REPLAYS):
            replay()
        end = Mark(device)
        end.wait()
    return end.seconds_since(begun) * 1e6 / REPLAYS / LAYERS
