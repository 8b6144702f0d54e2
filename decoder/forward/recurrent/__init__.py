"""Models with states that no mask can hide (recurrences, convolutions): their layers compute root-to-leaf paths."""
