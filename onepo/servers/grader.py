"""The grader of a run: how a local one is called, and the question that any is asked before it is relied on."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onepo.endpoints.chat import chat_url
from onepo.endpoints.explain import EndpointOptions, served_names
from onepo.rewards.probe import settle
from onepo.rewards.probe_errors import GRADER
from onepo.rewards.template import load_template, template_hash
from onepo.servers.local import ServerNames
from onepo.settings import GraderSettings, ServerSettings, option_of

LOG_FILE = "grader.log"
# a local grader has no address or name that the user gave
LOCAL = replace(GRADER, url="the local grader", model="the local grader, model")
SERVER = ServerNames(
    who="the grader",
    model="grader",
    options={key: option_of(f"reward_server.{key}") for key in ServerSettings.model_fields},
    rollout_share="ROLLOUT_GPU_MEMORY_UTILIZATION",
    reuse="START_REWARD_SERVER=0 REWARD_MODEL_URL={address}/v1/chat/completions REWARD_MODEL_NAME={name}",
)
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
