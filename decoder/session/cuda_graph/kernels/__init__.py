"""Triton kernels with the signatures and results of the plain functions in `draft.py` and `verify.py`.

Each file names its plain function, which is its reference. Only `kernel_trial.py` imports these files, and only on a
device with CUDA, since triton is installed only with CUDA builds of torch.
"""
