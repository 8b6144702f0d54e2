"""The terminal: the app, its keys and panels, and the way to the terminal."""
