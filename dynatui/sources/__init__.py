"""Sources of records: an engine, a recording, a recording that another process is writing, and a server."""
