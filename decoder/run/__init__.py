"""A run: configuration, loading of the pair, decoding path, and the race of methods over one text."""
