"""State of the program: pure folds of records into frozen values, without Textual and without threads."""
