"""The Textual apps: their panels, what keys and clicks do, and the summary at the end."""
