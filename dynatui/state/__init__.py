"""What is known: pure folds of records into frozen values; no Textual, no thread."""
