"""Lines of the server: load, endurance, faults."""
