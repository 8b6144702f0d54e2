"""Forward forms of a model (native, Hugging Face, static, batch-invariant): each computes logits from token rows."""
