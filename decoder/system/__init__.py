"""The machine and the process: devices, waits for a processor, whole-file writes and deferred imports."""
