"""A teacher that a real inference engine serves: vLLM and SGLang, on this machine's CPU."""

import asyncio

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from camp.configuration import recipe_config
from camp.opd.server import SERVER
from onepo.endpoints.scoring import ScoringEndpoint
from onepo.servers.local import LocalServer
from onepo.settings import ServerSettings
from tests.e2e.camp import EPISODES, prepare, start
from tests.e2e.grading import free_port
from tests.engines.environments import engine_python
from tests.students import make_small_copy

pytestmark = pytest.mark.slow

ENGINES = pytest.mark.parametrize(
    ("backend", "arguments"),
    [("vllm", "--max-model-len 2048 --dtype float32"), ("sglang", "--context-length 2048 --dtype float32")],
    ids=["vllm", "sglang"],
)
CONVERSATIONS = [
    [{"role": "user", "content": "Name the seasons of the year."}, {"role": "assistant", "content": "Spring. No."}],
    [{"role": "user", "content": "Count: " + " ".join(map(str, range(200)))}, {"role": "assistant", "content": "zzq"}],
]
NEAR = 1e-3  # nats; both compute in float32, in another order


@ENGINES
def test_its_scores_are_those_of_a_plain_forward_pass(backend, arguments, smollm2, tmp_path):
    recipe = OmegaConf.to_container(recipe_config("opd").camp.teacher, resolve=False)["server"]
    changes = {"python": str(engine_python(backend)), "path": str(smollm2), "port": free_port(), "backend": backend}
    settings = ServerSettings.model_validate({**recipe, **changes, "extra_args": arguments})
    server = LocalServer(
        settings, SERVER, model="teacher", device="cpu", log=tmp_path / "teacher.log", say=print, lost=print
    )
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    rows = [
        tokenizer.encode(tokenizer.apply_chat_template(one, tokenize=False), add_special_tokens=False)
        for one in CONVERSATIONS
    ]
    starts = [1, len(rows[0]) // 2, len(rows[1]) - 1, 1]
    asked = [(rows[0], starts[0]), (rows[0], starts[1]), (rows[1], starts[2]), (rows[1], starts[3])]

    async def score() -> list[list[float]]:
        options = {"timeout": 120, "max_concurrency": 4, "outage_limit": 5, "api_key": None}
        endpoint = ScoringEndpoint(engine=backend, url=server.address, model="teacher", **options)
        try:
            return await asyncio.gather(*(endpoint.score(ids, start=first) for ids, first in asked))
        finally:
            await endpoint.aclose()

    try:
        server.start()
        found = asyncio.run(score())
    finally:
        server.stop()
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    largest = 0.0
    for (ids, first), scores in zip(asked, found, strict=True):
        with torch.no_grad():
            log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1], -1)
        assert len(scores) == len(ids) - first and min(scores) < -1
        plain = log_probs.gather(1, torch.tensor(ids[1:])[:, None])[first - 1 :, 0]
        largest = max(largest, (plain - torch.tensor(scores)).abs().max().item())
    print(f"{backend}: the largest difference from a plain forward pass is {largest:.1e} nats")
    assert largest < NEAR


@ENGINES
def test_a_server_that_the_launcher_starts_teaches(backend, arguments, smollm2, tmp_path):
    make_small_copy(smollm2, tmp_path / "student")
    limits = ("--updates", 1, "--episodes", EPISODES, "--turns", 2, "--turn-tokens", 8)
    inputs = prepare(tmp_path / "prepared", "--domain", "games", *limits)
    run = start(
        tmp_path / "out",
        launcher="CAMP_OPD.sh",
        STUDENT_PATH=str(tmp_path / "student"),
        TEACHER_PATH=str(smollm2),
        START_TEACHER_SERVER="1",
        TEACHER_BACKEND=backend,
        TEACHER_SERVER_PYTHON=str(engine_python(backend)),
        TEACHER_SERVER_PORT=str(free_port()),
        TEACHER_SERVER_EXTRA_ARGS=arguments,
        MAX_PROMPT_LENGTH="512",
        MAX_RESPONSE_LENGTH="512",
        TOTAL_UPDATES="1",
        **inputs,
    ).finish()
    assert run.code == 0, run.tell()
    assert run.processes() == []
    assert "the teacher scores a conversation of" in run.stdout
    (record,) = run.metrics()
    assert record["distillation/unscored"] == 0 and record["distillation/kl"] > 0 and record["actor/grad_norm"] > 0
    assert record["teacher/latency_max"] > 0 and record["teacher/tokens_per_second"] > 0
    assert (run.attempt / "logs" / "teacher.log").stat().st_size > 1000
    assert run.facts()["teacher"] == str(smollm2)
