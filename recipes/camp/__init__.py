"""CAMP: asynchronous training over several task services."""
