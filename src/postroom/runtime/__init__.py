"""runtime: what every process needs and no capability owns."""
