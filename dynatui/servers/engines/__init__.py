"""What each engine is told about drafting, as text to paste: a file an engine, listed in `table`."""
