"""Turn games: frozen lakes, a taxi, a card game, whose rules are gymnasium's."""

from camp.environments.games.domain import DOMAIN as DOMAIN
