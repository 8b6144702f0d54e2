"""Where records come from: an engine, a recording, or a recording that another process writes."""
