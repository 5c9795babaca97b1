"""Questions over a small database, answered by read-only SQL that DuckDB carries out."""

from camp.environments.database.domain import DOMAIN as DOMAIN
