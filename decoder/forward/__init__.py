"""Forward forms, which compute a model's forward passes: native, compiled, static, batch-invariant, Hugging Face."""
