"""Runs the judge, and reads what its report says about a candidate."""
