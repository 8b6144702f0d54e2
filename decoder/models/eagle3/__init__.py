"""EAGLE-3 checkpoints as they are published: configuration and safetensors, read without transformers."""
