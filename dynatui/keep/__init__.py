"""What outlives a run: recordings, exports, the summary on the normal screen."""
