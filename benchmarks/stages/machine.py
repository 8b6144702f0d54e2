"""Stage that says on which machine the session runs."""

import os
import subprocess
import sys
from importlib import metadata

import torch

from benchmarks.stages.packages import requirements
from benchmarks.stages.worker import Work

VARIABLES = ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "TRITON_CACHE_DIR", "CUDA_VISIBLE_DEVICES")


def machine(work: Work) -> None:
    """Versions, memory, and variables that change what a GPU computes."""
    properties = torch.cuda.get_device_properties(0)
    installed = {each.name.lower(): each.version for each in metadata.distributions()}
    versions = {name: installed.get(name) for name in (*requirements(), "triton")}
    free_bytes, whole_bytes = torch.cuda.mem_get_info()
    work.note(
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, "
        f"{properties.multi_processor_count} multiprocessors, {free_bytes / 1e9:.0f} GB of "
        f"{whole_bytes / 1e9:.0f} free; CUDA {torch.version.cuda}, torch {torch.__version__}, "
        f"Triton {versions['triton']}, Python {sys.version.split()[0]}",
        versions=versions,
        variables={name: os.environ.get(name) for name in VARIABLES},
    )
    subprocess.run(["nvidia-smi"], check=False)  # noqa: S607 - the driver's program, wherever it is
