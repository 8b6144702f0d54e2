"""A target spread over several processes: one leads and decides, the others replay its passes."""
