"""Triton kernels with the signatures and results of the PyTorch functions in `draft.py` and `verify.py`.

Each file names the PyTorch function that is its reference. Only `kernel_trial.py` imports these files, and only on a
device with CUDA, since triton is installed only with CUDA builds of torch.
"""
