"""Pure functions from the state of a run to rows of styled text; no Textual, no clock, no thread."""
