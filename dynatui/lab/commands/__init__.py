"""Commands of the laboratory: `bench`, `profile`, `selector` and `tune`."""
