"""Length penalties that are added to a task score. All of them are at most 0; lengths count tokens."""


def overlong_penalty(
    *, response_tokens: int, max_response_length: int, buffer_len: int, penalty_factor: float
) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13).

    It falls linearly from 0, ``buffer_len`` tokens before the response limit, to ``-penalty_factor`` at the limit.
    """
    exceed = response_tokens - (max_response_length - buffer_len)
    if exceed <= 0:
        return 0.0
    return -exceed / buffer_len * penalty_factor


def answer_length_penalty(
    *, answer_tokens: int, expected_tokens: int, buffer_tokens: int, penalty_factor: float
) -> float:
    """Penalty on a long visible answer.

    It falls linearly from 0 at ``expected_tokens`` to ``-penalty_factor`` at ``buffer_tokens`` more, and stays there.
    """
    exceed = min(max(answer_tokens - expected_tokens, 0), buffer_tokens)
    return -exceed / buffer_tokens * penalty_factor
