"""Forward passes of the usual sizes, compiled by torch.compile and used if they are faster on this device.

A compiled pass has a fixed number of rows. The number of cache slots in the store and the number of slots that
attention reads are dynamic, so that a growing text needs no recompilation. A pass of a size that was not compiled in
advance runs uncompiled, so that no round waits for the compiler. torch.compile is not allowed to capture CUDA graphs
itself, since its graphs would not allow writes to the KV store. If compilation fails, or the compiled passes are not
faster, the uncompiled passes are used.
"""

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.errors import first_line
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import StaticForward
from decoder.models.pair import Pair
from decoder.session.cuda_graph.pass_comparison import compared, example
from decoder.session.cuda_graph.self_test import refusal
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import Passes
from decoder.system.device import without_gradients
from decoder.tree_rules import Rules

Pass = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Compile = Callable[[Pass], Pass]
MOST_COMPILED = 256
"""Limit for compiled sizes of all models together; torch's default of 8 is too low for a process with many pairs."""
LENGTHS: dict[int, Literal["default", "fail_on_recompile"]] = {100: "default", 400: "fail_on_recompile"}
"""Text length of each example pass, and torch's compiler stance: the second pass fails if it would recompile."""
Report = Callable[[str], None]


def by_torch(function: Pass) -> Pass:
    """The compiled pass accepts only tensors of the example's sizes, except for dimensions marked as dynamic."""
    return torch.compile(function, fullgraph=True, dynamic=False)


class Compiled:
    """A `StaticForward` whose passes of some sizes are compiled; passes of other sizes run uncompiled."""

    def __init__(self, plain: StaticForward, compile_pass: Compile) -> None:
        self.plain = plain
        self.windows, self.new_store, self.rotation = plain.windows, plain.new_store, plain.rotation
        readable = plain.for_a_compiler() if isinstance(plain, NativeModel) else plain
        self._pass = compile_pass(readable.computed)
        self._sizes: set[int] = set()

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Tensor,
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        if len(tokens) not in self._sizes:
            return self.plain.computed(store, tokens, rotation, slots, bias)
        # A pass that would need a recompilation runs uncompiled, so that the round does not wait for the compiler.
        with torch.compiler.set_stance("eager_on_recompile"):
            return self._pass(store, tokens, rotation, slots, bias)

    def compile(self, sizes: Collection[int]) -> None:
        from torch import _dynamo as dynamo  # noqa: PLC0415 - the import takes a second

        limits: dict[str, Any] = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), MOST_COMPILED)
        for rows in sorted(set(sizes) - self._sizes):
            for length, stance in LENGTHS.items():
                inputs = example(self, rows, length)
                dynamo.mark_dynamic(inputs[0], 3)
                dynamo.mark_dynamic(inputs[-1], 1)
                # The compiler's warnings are irrelevant: a compiled form is judged only by its time and its logits.
                with (
                    warnings.catch_warnings(action="ignore"),
                    without_gradients(),
                    dynamo.config.patch(limits),
                    torch.compiler.set_stance(stance),
                ):
                    self._pass(*inputs)
            self._sizes.add(rows)


def compile_pair(
    pair: Pair,
    graph_slots: GraphSlots,
    tried: Sequence[Rules | None],
    report: Report,
    passes: Passes,
    compile_pass: Compile = by_torch,
) -> None:
    """Compiles the passes of draft and target; the slots use each model's faster form. The smallest and the largest
    pass are compiled and timed first, the others only if these two are faster. If rounds with compiled passes write
    another text than rounds on the host, both models keep their uncompiled forms.
    """
    sizes = {pair.draft_model: ("draft", passes.draft), pair.target: ("target", passes.target)}
    before = {model: graph_slots.forward(model) for model in sizes}
    for model, (role, rows) in sizes.items():
        if rows:
            report(f"compiling the {role}")
            try:
                report(f"compiled {role}: {_compile(model, graph_slots, rows, compile_pass)}")
            except Exception as error:  # noqa: BLE001 - a compiler may fail in any way, without effect on texts
                report(f"the {role} was not compiled: {first_line(error)}")
    if all(graph_slots.forward(model) is form for model, form in before.items()):
        return
    refused = refusal(pair, graph_slots, tried)
    if refused:
        graph_slots.forms.update(before)
        report(f"compiled passes are not used: {refused}")


def _compile(model: LanguageModel, graph_slots: GraphSlots, sizes: Sequence[int], compile_pass: Compile) -> str:
    """Compiles the passes of one model; returns the verdict in words."""
    plain, timed = graph_slots.forward(model), sorted({min(sizes), max(sizes)})
    form = Compiled(plain, compile_pass)
    form.compile(timed)
    share = compared(plain, form, timed, graph_slots)
    if share is None:
        return "not used, since its logits differ from those of uncompiled passes"
    if share.pays:
        form.compile(sizes)
        graph_slots.forms[model] = form
    kept = "kept" if share.pays else "not kept"
    return f"takes {share.median:.2f} x the time of uncompiled passes, so it is {kept}"
