"""Stage that times the attention kernels of one layer, by number of parts, warps and pipeline stages."""

from benchmarks.stages.worker import Work


def attention(work: Work) -> None:
    """x"""
