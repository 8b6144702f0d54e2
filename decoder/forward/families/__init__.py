"""Native model families: models built from few, large operations, tested for equality with Hugging Face's modules."""
