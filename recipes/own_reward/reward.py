"""The score of a response to a task of the type custom: REWARD_FUNCTION=recipes/own_reward/reward.py:score"""

import re


def score(messages, response, record):
    """How plainly the remedy is named: 1 for its name alone, less with every word around it, 0 without it.

    messages: the prompt, a list of {"role": ..., "content": ...}
    response: what the student answers, without its thoughts
    record: the fields of the data file's record
    """
    words = re.findall(r"\w+", response.lower())
    if record["remedy"] not in words:
        return 0.0
    return 1 / len(words)
