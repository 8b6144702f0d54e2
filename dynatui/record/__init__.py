"""Outputs of a run: recordings, exports, transcripts and command lines."""
