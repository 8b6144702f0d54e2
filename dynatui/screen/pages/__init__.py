"""Pages that cover the main screen until they are closed, such as the help."""
