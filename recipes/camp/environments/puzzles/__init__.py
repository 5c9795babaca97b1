"""Reasoning puzzles: reasoning-gym makes and scores them, the student has a few attempts."""

from camp.environments.puzzles.domain import DOMAIN as DOMAIN
