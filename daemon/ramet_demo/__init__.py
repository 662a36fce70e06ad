"""A demonstration without an account: real agents and a scripted model in a temporary directory."""
