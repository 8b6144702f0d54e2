"""Models with states (recurrences, convolutions): layers with states take no tree mask, and so compute whole paths."""
