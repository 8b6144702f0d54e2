"""Outputs of a run: recordings, exported files, transcripts and command lines."""
