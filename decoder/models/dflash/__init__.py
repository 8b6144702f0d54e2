"""Published DFlash checkpoints (z-lab, speculators, DeepSpec): configuration and weights, read without transformers."""
