"""Questions about an invented world, answered by searching a document set with BM25."""

from camp.environments.search.domain import DOMAIN as DOMAIN
