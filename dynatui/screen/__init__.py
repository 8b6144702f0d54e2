"""The Textual apps: panels, commands of keys and clicks, and the summary after the end of an app."""
