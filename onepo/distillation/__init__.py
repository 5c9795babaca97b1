"""Learning from a teacher's probability of each token: asking for it, keeping it beside a row, and what it says."""
