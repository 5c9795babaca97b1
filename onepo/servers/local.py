"""An inference server that a run starts, watches and stops, as the run and its user see it."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onepo.endpoints.explain import served_names
from onepo.servers.engines import HEALTH_PATH, EngineOptions, server_command
from onepo.servers.managed import ManagedServer, ServerStartFailed
from onepo.servers.supervisor import signal_name
from onepo.settings import ServerSettings

_CLEARING_SECONDS = 60.0


@dataclass(frozen=True)
class ServerNames:
    """How a user knows a managed server.

    Attributes:
        who: such as ``the grader``.
        model: what its model is called, unless the user says so.
        options: the user's names of what is in ``ServerSettings``.
        rollout_share: that of the rollout engine's share of a GPU's memory.
        reuse: the options that use a server that runs already, with ``{address}``, ``{backend}`` and ``{name}``.
    """

    who: str
    model: str
    options: Mapping[str, str]
    rollout_share: str
    reuse: str


class LocalServer:
    """The managed server.

    Args:
        options: what the user chose for it.
        names: how messages speak of it.
        model: the name of its model; None: that of ``names``.
        device: ``cpu`` or ``gpu``.
        log: where its output goes.
        say: shows a line to the user; called from a thread, too.
        lost: called from a thread, with the reason, when it has ended for good.

    Attributes:
        name: of its model.
        address: without a path.
    """

    def __init__(
        self,
        options: ServerSettings,
        names: ServerNames,
        *,
        model: str | None,
        device: str,
        log: Path,
        say: Callable[[str], None],
        lost: Callable[[str], None],
    ):
        self._options = options
        self._names = names
        self._say = say
        self._lost = lost
        self._ready = self._was_ready = False
        self._log = log
        self.name = model or names.model
        host = f"[{options.host}]" if ":" in options.host else options.host  # an IPv6 address
        self.address = f"http://{host}:{options.port}"
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
            health_url=self.address + HEALTH_PATH,
            start_timeout=options.start_timeout,
            max_restarts=options.max_restarts,
            leave_running=not options.auto_kill,
            on_state=self._on_state,
        )

    @property
    def url(self) -> str:
        """Of its chat completions."""
        return f"{self.address}/v1/chat/completions"

    @property
    def longest_outage(self) -> float:
        """Seconds that a request may have to wait for: a restart, and until what is left of the last one is gone."""
        return self._options.start_timeout + _CLEARING_SECONDS

    def start(self) -> None:
        """Start it and return when it is ready.

        Raises:
            ServerStartFailed: it did not come up, or serves another model.
        """
        who = self._names.who
        self._say(f"starting {who} with {self._options.backend}; its output is in {self._log}")
        try:
            self._server.start()
            self._server.wait_until_ready()
            names = asyncio.run(served_names(self.url, None))
            if names and self.name not in names:
                raise ServerStartFailed(f"{self.url} serves {', '.join(names)} and not {self.name}", [])
        except ServerStartFailed as error:
            raise ServerStartFailed(f"{who}: {error.reason}", error.log_tail) from None

    def stop(self) -> None:
        """End it, unless it is to be left running."""
        self._server.stop()
        if self._ready and not self._options.auto_kill:
            reuse = self._names.reuse.format(address=self.address, backend=self._options.backend, name=self.name)
            self._say(
                f"{self._names.who} is left running at {self.url} ({reuse} uses it); "
                f"it ends with: kill -- -{self._server.pid}"
            )

    def _on_state(self, status: dict[str, Any]) -> None:
        state, who = status["state"], self._names.who
        if state == "ready":
            self._ready = self._was_ready = True
            self._say(f"{who} is ready after {status['seconds']:.0f} s")
        elif state == "ended":
            self._ready = False
            left, allowed = status["restarts_left"], self._options.max_restarts
            again = f": starting it again (restart {allowed - left + 1} of {allowed})" if left else ""
            self._say(f"{who} {_ended(status['exit_code'])}{again}")
        elif state == "failed" and self._was_ready:  # a first start that fails is told by `start`
            self._ready = False
            self._lost(status["reason"])


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "did not get ready"
    return f"was ended by {signal_name(-exit_code)}" if exit_code < 0 else f"ended with exit code {exit_code}"
