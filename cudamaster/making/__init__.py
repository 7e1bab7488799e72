"""Makes a task of a user's own kernel: reads the file and writes a card, the baseline and a reference to fill in."""
