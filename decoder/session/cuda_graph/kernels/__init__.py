"""Triton kernels with the results of PyTorch functions: of rounds (`draft.py`, `verify.py`), of layers in passes of
fixed shape, and of truncation.

Each file names the PyTorch function that is its reference. Only `kernel_trial.py` imports these files, and only on a
device with CUDA, since triton is installed only with CUDA builds of torch.
"""
