"""Published EAGLE-3 checkpoints: configuration and weights in safetensors, read without transformers."""
