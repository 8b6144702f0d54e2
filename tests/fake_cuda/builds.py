"""Builds of torch on which the fake device cannot stand in for a device."""

import pytest
import torch

needs_build_without_cuda_or_driver = pytest.mark.skipif(
    torch.version.cuda is not None and not torch.cuda.is_available(),
    reason="torch was built for CUDA: without a driver, some of its operators fail before the fake device gets them",
)
