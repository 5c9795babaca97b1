"""Clients of OpenAI-compatible endpoints: a grader, a teacher that answers while the run goes on."""
