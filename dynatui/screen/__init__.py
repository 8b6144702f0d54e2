"""The Textual apps: panels, commands of keys and clicks, and the summary at the end."""
