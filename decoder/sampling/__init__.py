"""How tokens are sampled: temperature and truncation, and noise that is the same for whoever asks."""
