"""How the judge is run, and what its report says of a candidate."""
