"""Sources of records: an engine, a recording, a recording that another process writes, a server."""
