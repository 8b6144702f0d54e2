"""Pure functions from what is known to rows of inked text; no Textual, no clock, no thread."""
