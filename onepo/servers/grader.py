"""The grader of a run: a local one is started, watched and stopped; any is asked once before it is relied on."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from onepo.endpoints.chat import chat_url
from onepo.endpoints.explain import EndpointOptions, served_names
from onepo.rewards.probe import settle
from onepo.rewards.probe_errors import GRADER
from onepo.rewards.template import load_template, template_hash
from onepo.servers.engines import HEALTH_PATH, EngineOptions, server_command
from onepo.servers.managed import ManagedServer, ServerStartFailed
from onepo.servers.supervisor import signal_name
from onepo.settings import GraderSettings, RewardServerSettings

LOG_FILE = "grader.log"
# a local grader has no address or name that the user gave
LOCAL = replace(GRADER, url="the local grader", model="the local grader, model")
LOCAL_NAME = "grader"  # of a local grader's model, unless the user gives another one
_PROBE_PATIENCE = 10.0  # seconds for an endpoint that is not there yet


def probe_grader(
    grader: GraderSettings, *, api_key: str | None, say: Callable[[str], None], options: EndpointOptions = GRADER
) -> dict[str, Any]:
    """Have one real grading done and say what the endpoint takes.

    Returns the keys of ``onepo.grader`` that change by it: ``url`` in full, and ``form``.

    Raises:
        UserError: the endpoint is no usable grader.
    """
    say("asking the grader for a small grading")
    settled = asyncio.run(
        settle(
            url=grader.url,
            model=grader.name,
            api_key=api_key,
            extra_body=grader.extra_body,
            timeout=grader.timeout,
            outage_limit=_PROBE_PATIENCE,
            template=load_template(grader.prompt_file),
            max_tokens=grader.max_tokens,
            max_retries=grader.max_retries,
            options=options,
        )
    )
    for line in settled.lines:
        say(line)
    names = asyncio.run(served_names(chat_url(grader.url), api_key))
    if names and grader.name not in names:  # some endpoints answer to any name
        say(f"warning: the grader lists {', '.join(names)} and not {grader.name}, yet it answers to that name")
    return {"url": chat_url(grader.url), "form": settled.form.as_dict()}


def grader_facts(grader: GraderSettings) -> dict[str, Any]:
    """What ``run.json`` keeps of a probed grader."""
    prompt = template_hash(load_template(grader.prompt_file))
    return {"url": grader.url, "name": grader.name, "form": grader.form, "prompt_sha256": prompt}


class LocalGrader:
    """The managed server, as the run sees it.

    Args:
        options: what the user chose for it.
        name: of its model, or None.
        device: ``cpu`` or ``gpu``.
        logs_dir: where its output goes.
        say: shows a line to the user; called from a thread, too.
        lost: called from a thread, with the reason, when it has ended for good.
    """

    def __init__(
        self,
        options: RewardServerSettings,
        *,
        name: str | None,
        device: str,
        logs_dir: Path,
        say: Callable[[str], None],
        lost: Callable[[str], None],
    ):
        self._options = options
        self._say = say
        self._lost = lost
        self._ready = self._was_ready = False
        self._log = logs_dir / LOG_FILE
        self.name = name or LOCAL_NAME
        host = f"[{options.host}]" if ":" in options.host else options.host  # an IPv6 address
        address = f"http://{host}:{options.port}"
        self.url = f"{address}/v1/chat/completions"
        command = server_command(
            EngineOptions(
                backend=options.backend,
                python=options.python or sys.executable,
                model_path=options.path,
                name=self.name,
                host=options.host,
                port=options.port,
                dp=options.dp,
                tp=options.tp,
                mem_fraction=options.mem_fraction,
                chat_template=options.chat_template,
                gpus=options.gpus,
                device=device,
                extra_args=options.extra_args,
            )
        )
        if options.python:  # an environment of its own, which our packages must not shadow
            command = replace(command, env={**command.env, "PYTHONPATH": ""})
        self._server = ManagedServer(
            command,
            log=self._log,
            health_url=address + HEALTH_PATH,
            start_timeout=options.start_timeout,
            max_restarts=options.max_restarts,
            leave_running=not options.auto_kill,
            on_state=self._on_state,
        )

    def start(self) -> None:
        """Start it and return when it is ready.

        Raises:
            ServerStartFailed: it did not come up, or serves another model.
        """
        self._say(f"starting the grader with {self._options.backend}; its output is in {self._log}")
        self._server.start()
        self._server.wait_until_ready()
        names = asyncio.run(served_names(self.url, None))
        if names and self.name not in names:
            raise ServerStartFailed(f"{self.url} serves {', '.join(names)} and not {self.name}", [])

    def stop(self) -> None:
        """End it, unless it is to be left running."""
        self._server.stop()
        if self._ready and not self._options.auto_kill:
            self._say(
                f"the grader is left running at {self.url} (START_REWARD_SERVER=0 REWARD_MODEL_URL={self.url} "
                f"REWARD_MODEL_NAME={self.name} uses it); it ends with: kill -- -{self._server.pid}"
            )

    def _on_state(self, status: dict[str, Any]) -> None:
        state = status["state"]
        if state == "ready":
            self._ready = self._was_ready = True
            self._say(f"the grader is ready after {status['seconds']:.0f} s")
        elif state == "ended":
            self._ready = False
            left, allowed = status["restarts_left"], self._options.max_restarts
            again = f": starting it again (restart {allowed - left + 1} of {allowed})" if left else ""
            self._say(f"the grader {_ended(status['exit_code'])}{again}")
        elif state == "failed" and self._was_ready:  # a first start that fails is told by `start`
            self._ready = False
            self._lost(status["reason"])


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "did not get ready"
    return f"was ended by {signal_name(-exit_code)}" if exit_code < 0 else f"ended with exit code {exit_code}"
