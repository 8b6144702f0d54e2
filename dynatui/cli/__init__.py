"""The command line: options, settings, runs without a screen, and diagnosis of a broken installation."""
