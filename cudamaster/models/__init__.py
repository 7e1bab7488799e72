"""Models: LiteLLM's, the built-in playbook, and the one small protocol they share."""
