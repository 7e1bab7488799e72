"""Many searches under one budget."""
