"""How the embedded pair was made: tokenizer, target, draft, distillation, measurement.

Run as ``python -m dynatui.lab.training STAGE``. Nothing outside this package imports it: the engine knows models only
as directories on disk.
"""
