"""The exceptions that cross process borders; all of them survive pickling, which Ray needs."""


class UserError(Exception):
    """Something the user gave is wrong. The message says what was found, why it is wrong and what to set.

    It ends the program with exit code 2 and without a traceback; no training has begun when it is raised.
    """


class ControlledStop(Exception):
    """The run ends before its last step, on purpose, with the weights saved.

    Args:
        reason: one sentence for the terminal and for run.json.
        exit_code: 0 when there is nothing left to learn, 3 when a limit was reached.
    """

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason, exit_code)
        self.reason = reason
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.reason


def last_line(error: BaseException) -> str:
    """The last line of what an exception says, which in a chain of them is the most telling one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
