"""What a chat endpoint's failures are called; each says in one line what happened, in the endpoint's own words."""


class EndpointError(Exception):
    """No completion came of a request.

    Attributes:
        requests: how many were sent for it.
    """

    requests: int = 0


class EndpointUnavailable(EndpointError):
    """The endpoint was not there, or had no time (429, 502, 503, 504), for longer than the outage limit.

    Args:
        explanation: one line for people.
        reason: what the last try found, one line without the limit.
        retry_after: seconds that its last answer asked to wait, 0 when it did not ask.
    """

    def __init__(self, explanation: str, reason: str, retry_after: float = 0.0):
        super().__init__(explanation, reason, retry_after)
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.args[0]


class RequestTimedOut(EndpointError):
    """The endpoint was there, but its answer was not complete in time."""


class ServerFailed(EndpointError):
    """The endpoint broke on the request (500 and the like), or its answer is no chat completion.

    Attributes:
        broke: it was the first of these.
    """

    def __init__(self, explanation: str, *, broke: bool = False):
        super().__init__(explanation)
        self.broke = broke


class RequestRefused(EndpointError):
    """The endpoint does not take the request (4xx, or a redirection): sending it again would change nothing.

    Args:
        explanation: one line for people.
        status: of HTTP.
    """

    def __init__(self, explanation: str, status: int):
        super().__init__(explanation, status)
        self.status = status

    def __str__(self) -> str:
        return self.args[0]


class ContextLengthExceeded(RequestRefused):
    """The messages, with the tokens asked for, are longer than the model's context."""
