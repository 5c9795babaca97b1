"""Positions of a processor-backed student's rows, against upstream's and with an image's placeholder in the text."""

import types

import pytest
import torch
from transformers.models.qwen3_vl import Qwen3VLModel
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from onepo.compat import plain_class
from onepo.rollout.text_only import TextOnly
from tests.students import tiny_qwen3_5

IMAGE, VIDEO, START = 90, 91, 92


class Worker(TextOnly, plain_class(AgentLoopWorkerTQ)):
    def __init__(self, processor):
        self.processor = processor


@pytest.fixture(scope="module")
def processor():
    """As verl makes one: an object with the model's function and configuration bound to it."""
    bound = types.SimpleNamespace(config=tiny_qwen3_5(vocab_size=100).config)
    bound.config.image_token_id, bound.config.video_token_id = IMAGE, VIDEO
    bound.config.vision_start_token_id = START
    for name in ("get_rope_index", "get_vision_position_ids"):
        setattr(bound, name, types.MethodType(getattr(Qwen3VLModel, name), bound))
    return bound


def upstream_positions(worker, ids):
    types_of_text = {"mm_token_type_ids": torch.zeros_like(ids)}
    return plain_class(AgentLoopWorkerTQ)._compute_position_ids(worker, ids, torch.ones_like(ids), types_of_text)


def test_text_has_the_positions_that_upstream_computes(processor):
    worker = Worker(processor)
    ids = torch.arange(7)[None]
    ours = worker._compute_position_ids(ids, torch.ones_like(ids), {})
    assert ours.shape == (1, 4, 7)
    assert torch.equal(ours, upstream_positions(worker, ids))
    assert torch.equal(ours[0, 2], torch.arange(7))


@pytest.mark.parametrize("placeholder", [[IMAGE], [START, IMAGE], [START, VIDEO], [IMAGE, IMAGE]])
def test_a_placeholder_in_a_response_is_text(processor, placeholder):
    ids = torch.tensor([[1, 2, *placeholder, 3]])
    worker = Worker(processor)
    assert worker._compute_multi_modal_inputs(None, ids) == {}
    positions = worker._compute_position_ids(ids, torch.ones_like(ids), {})
    assert torch.equal(positions, torch.arange(ids.shape[1]).expand(1, 4, -1))


def test_a_student_without_a_processor_has_one_axis():
    ids = torch.arange(5)[None]
    assert torch.equal(Worker(None)._compute_position_ids(ids, torch.ones_like(ids), {}), ids)
