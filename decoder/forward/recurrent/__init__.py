"""Models with states that no mask can hide (recurrences, convolutions): their layers run by root-to-leaf paths."""
