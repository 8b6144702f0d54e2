"""Static forward forms: passes of fixed shape, which a CUDA graph can replay."""
