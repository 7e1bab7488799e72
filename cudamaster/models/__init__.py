"""What answers the four roles: any model that LiteLLM reaches, or the built-in playbook."""
