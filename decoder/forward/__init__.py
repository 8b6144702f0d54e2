"""Forward forms of a model (native, Hugging Face, static, batch-invariant): rows of tokens in, logits out."""
