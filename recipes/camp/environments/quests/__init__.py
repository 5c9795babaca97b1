"""Household quests: small text worlds that TextWorld makes and keeps the rules of."""

from camp.environments.quests.domain import DOMAIN as DOMAIN
