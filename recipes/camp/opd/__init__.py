"""CAMP-II OPD: distillation from a teacher's probabilities of the tokens that the student sampled."""
