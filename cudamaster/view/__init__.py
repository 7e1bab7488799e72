"""A run read back for a person: as text and as a page."""
