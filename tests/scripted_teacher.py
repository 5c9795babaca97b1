"""A teacher over a real socket: the scripted grader's server, which says what a test wants to be said.

``with ScriptedTeacher(says=...) as teacher``; modes other than ``normal`` are the grader's.
"""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.scripted_grader import Received, ScriptedGrader


def echo(body: dict) -> str:
    return f"The answer to: {body['messages'][-1]['content']}"


class ScriptedTeacher(ScriptedGrader):
    """``says``: request body -> the text, or the fields of the choice and its message, or a status and a body."""

    def __init__(self, says: Callable[[dict], str | dict | tuple[int, dict]] = echo, **settings: Any):
        super().__init__(**{"name": "teacher", **settings})
        self.says = says

    async def _answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        response = await super()._answer(request, received)
        if response.status != 200 or received.mode != "normal":
            return response
        said = self.says(received.body)
        if isinstance(said, tuple):
            status, answer = said
            return web.json_response(answer, status=status)
        fields = {"content": said} if isinstance(said, str) else dict(said)
        finish_reason = fields.pop("finish_reason", "stop")
        choice = {"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": finish_reason}
        return web.json_response({"object": "chat.completion", "model": self.name, "choices": [choice]})
