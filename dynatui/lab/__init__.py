"""The laboratory: measures speeds, searches for settings, and trains models. Only the command line imports this
package, to add the commands in `commands`; the engine and the monitor run without it.
"""
