"""State of the program: pure folds of records into frozen values; no Textual, no thread."""
