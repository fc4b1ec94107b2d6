"""Pages that stand alone; the commands fill in their data."""
