"""The command line: options, settings, runs without a screen, and what helps when something is broken."""
