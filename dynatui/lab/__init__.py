"""The laboratory: measures speeds, searches for settings, and trains models. Only the command line imports it, for its
`commands`; the engine and the monitor run without it.
"""
