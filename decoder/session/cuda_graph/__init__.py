"""Rounds that live on the device: drafted, verified and committed there, captured as CUDA graphs where there are any.

The host enqueues the verification of one round and the draft of the next, and then waits once for both results. All
shapes are fixed, so that the same code runs as plain tensor operations on any device and as graphs on CUDA; what makes
trees differ are masks and numbers in device tensors. `session.GraphSession` decodes what `static_shapes.fits`;
everything else goes to `decoder.session.host.HostSession`, which gives the same rounds. `self_test` finds out whether
that works here, and `compile_trial` whether compiled passes are faster.
"""
