"""The models that answer the roles: any that LiteLLM reaches, or the built-in playbook."""
