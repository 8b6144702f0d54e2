"""Pages over the main screen."""
