"""Models with states (recurrences, convolutions): layers with states take no tree mask, so they compute whole paths."""
