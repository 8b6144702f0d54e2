"""Commands of the laboratory: `bench`, `tune` and `selector`."""
