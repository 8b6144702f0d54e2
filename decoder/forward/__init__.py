"""Forward forms of a model (native, compiled, static, batch-invariant, Hugging Face): rows of tokens in, logits out."""
