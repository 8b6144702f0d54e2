"""What outlives a run: recordings, exports, transcripts and command lines."""
