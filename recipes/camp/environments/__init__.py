"""The task services: OpenEnv servers that run in an environment of their own and import nothing of onepo or verl."""
