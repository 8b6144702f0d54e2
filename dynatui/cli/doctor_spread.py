"""The probe of `dynatui doctor --tensor-parallel N`: whether the target can be spread over N processes on this machine.

Yields a sentence for each check that passes; a check that fails raises the same DecoderError as a run would. Loads no
weights.
"""

from collections.abc import Iterator

from decoder.tensor_parallel.ranks import Ranks
from dynatui.session import Models


def spreading(models: Models, count: int, *, target_is_here: bool) -> Iterator[str]:
    """Checks whether the target can be spread; yields a sentence for each check that passes.

    Args:
        models: The pair, with its device and dtypes.
        count: Number of processes.
        target_is_here: Whether the target's configuration can be read without a download.

    Raises:
        DecoderError: A run with these options would fail.
    """
    from decoder.models.checkpoints import EMBEDDED_TARGET, display_name  # noqa: PLC0415 - imports torch
    from decoder.models.hf_checkpoints import load_config  # noqa: PLC0415 - imports transformers
    from decoder.tensor_parallel import check  # noqa: PLC0415 - imports torch
    from decoder.tensor_parallel.target import rank_device  # noqa: PLC0415 - imports torch

    check.require_packages()
    check.require_partial_weights(exact=models.exact, compiled=models.compiled)
    device = rank_device(Ranks(0, count, local=0, local_count=count), models.device)
    yield f"{count} processes {'would share this CPU' if device.type == 'cpu' else 'would have a GPU each'}"
    if target_is_here:
        target = models.target or str(EMBEDDED_TARGET)
        check.require_no_adapter(target)
        config = load_config(target)
        check.require_plan(display_name(target), config, count)
        check.require_plain_weights(display_name(target), config, device)
        yield f"transformers can spread {display_name(target)} over {count} processes; the host would drive the rounds"
