"""Learning from episodes: what both methods add to verl's asynchronous trainer."""
