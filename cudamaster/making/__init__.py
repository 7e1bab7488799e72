"""Makes a task of a user's own kernel: reads the file, asks what it cannot know, writes card, baseline and reference."""
