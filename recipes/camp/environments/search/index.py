"""The index over the documents, built once and only read afterwards."""

import bm25s
import numpy as np

from camp.environments.search.documents import Document, make_documents


class Index:
    """BM25 over all documents."""

    def __init__(self):
        self.by_title = make_documents()
        self._documents = list(self.by_title.values())
        self._by_id = {document.id: document for document in self._documents}
        # the title weighs more, so that a search for a name finds its document before those that mention it
        texts = [f"{document.title} {document.title} {document.title} {document.text}" for document in self._documents]
        self._bm25 = bm25s.BM25()
        self._bm25.index(_words(texts), show_progress=False)

    def search(self, query: str, most: int) -> list[Document]:
        """The documents that fit best; none when no word of the query is in any."""
        words = _words([query])[0]
        if not words:
            return []
        scores = self._bm25.get_scores(words)
        best = np.argsort(-scores, kind="stable")[:most]  # equal ones always in the same order
        return [self._documents[place] for place in best if scores[place] > 0]

    def open(self, id: str) -> Document | None:
        return self._by_id.get(id.upper())


def _words(texts: list[str]) -> list[list[str]]:
    return bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)


INDEX = Index()
