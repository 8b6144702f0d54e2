"""Any drafting head as a `Forward` without a target, for timing its passes; its predictions are meaningless."""

from decoder.forward.dflash.head import BlockHead
from decoder.forward.dflash.unguided import UnguidedBlocks
from decoder.forward.eagle3.head import Head
from decoder.forward.eagle3.unguided import Unguided, UnguidedParallel
from decoder.forward.layer_states import StatesReader
from decoder.forward.protocol import Forward, GuidedHead


def unguided(head: StatesReader) -> Forward:
    """The head as a `Forward` with zeros in place of the target's states; raises TypeError if its kind is unknown."""
    if isinstance(head, BlockHead):
        return UnguidedBlocks(head)
    if isinstance(head, Head) and head.shape.parallel:
        return UnguidedParallel(head)
    if isinstance(head, GuidedHead):
        return Unguided(head)
    raise TypeError(f"{type(head).__name__} is not a known kind of drafting head")
