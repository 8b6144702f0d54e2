"""Forward forms: implementations of a model's forward pass, for example native, compiled, static, Hugging Face."""
