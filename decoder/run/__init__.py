"""A run: its configuration, the loading of its pair, its decoding path, and the race of methods over one text."""
