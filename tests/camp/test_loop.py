"""Episodes as pictures: which tokens are the student's, which are observations, where it ends and why."""

import asyncio
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from camp.routes import Route
from camp.sampling.loop import EnvironmentLoop, PromptTooLong
from camp.sampling.session import SessionFault
from camp.schedule import ScheduledEpisode
from tests.camp.openenv_server import Server, error, observation
from tests.configs import compose
from tests.conftest import ROOT

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "tests/unit/data/byte_tokenizer")
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
# what the template puts around a message, in tokens: the byte tokenizer has one for each letter
AROUND_USER = "\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


class Student:
    """Says one thing after the other; cut, like an engine would cut it, at the limit of tokens."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.asked = []

    async def generate(self, *, request_id, prompt_ids, sampling_params):
        self.asked.append((request_id, prompt_ids, sampling_params))
        text = self.texts.pop(0)
        ids = TOKENIZER.encode(text, add_special_tokens=False)
        ids = ids[: sampling_params["max_tokens"]]
        turn = len(self.asked)
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5 * turn] * len(ids),
            stop_reason="completed",
            extra_fields={"min_global_steps": turn, "max_global_steps": turn + 1},
        )


class Loop(EnvironmentLoop):
    async def run(self, sampling_params, **columns):
        raise NotImplementedError("these tests play one episode at a time")


def play(student, *answers, response=200, prompt=100, turns=9, turn_tokens=60):
    config = compose(
        f"data.max_prompt_length={prompt}",
        f"data.max_response_length={response}",
        "data.apply_chat_template_kwargs={}",
    )
    server = Server(*answers)
    episode = ScheduledEpisode(position=0, domain="d", task="easy", seed=7, turns=turns, turn_tokens=turn_tokens)

    async def main():
        loop = Loop(
            trainer_config=DictConfigWrap(config),
            server_manager=student,
            tokenizer=TOKENIZER,
            processor=None,
            dataset_cls=None,
            data_config=DictConfigWrap(config.data),
            hf_model_type="llama",
        )
        async with server:
            route = Route(
                url=server.url,
                managed=None,
                tasks=["easy"],
                left_out=[],
                action_field="text",
                observation_field="text",
                timeout=5,
                connect_timeout=5,
                turns=turns,
                turn_tokens=turn_tokens,
                fingerprint=None,
            )
            return (*await loop.play(episode, route, {"temperature": 1.0}, stop_ids=frozenset({END})), loop)

    transcript, ending, loop = asyncio.run(main())
    return SimpleNamespace(transcript=transcript, ending=ending, loop=loop, server=server)


def picture(transcript):
    """The response as text, what is not the student's in brackets."""
    parts, position = [], 0
    while position < len(transcript.mask):
        end = position
        while end < len(transcript.mask) and transcript.mask[end] == transcript.mask[position]:
            end += 1
        text = TOKENIZER.decode(transcript.response_ids[position:end])
        parts.append(text if transcript.mask[position] else f"[{text}]")
        position = end
    return "".join(parts).replace("<|im_start|>", "<").replace("<|im_end|>", ">").replace("\n", "|")


def test_an_episode_that_the_service_ends():
    student = Student("go<|im_end|>", "take<|im_end|>")
    answers = (
        observation("Room."),
        observation("A key.", reward=0.25),
        observation("Won.", reward=0.75, done=True, success=True),
    )
    found = play(student, *answers)
    assert picture(found.transcript) == "go>[<user|A key.>|<assistant|]take>"
    assert found.transcript.task == "Room."
    assert TOKENIZER.decode(found.transcript.prompt_ids).endswith("Room.<|im_end|>\n<|im_start|>assistant\n")
    assert found.transcript.reward == 1.0 and found.ending.limit is None and found.ending.success is True
    assert found.server.received == [
        {"type": "reset", "data": {"seed": 7, "task": "easy"}},
        {"type": "step", "data": {"text": "go"}},
        {"type": "step", "data": {"text": "take"}},
        {"type": "close"},
    ]


def test_what_the_student_wrote_stays_token_for_token():
    """Tokens that no tokenizer would make of their text: the next turn reads them as they were sampled."""
    odd = TOKENIZER.encode("g", add_special_tokens=False) + TOKENIZER.encode("o", add_special_tokens=False) + [END]

    class Odd(Student):
        async def generate(self, **request):
            output = await super().generate(**request)
            return (
                output.model_copy(update={"token_ids": odd, "log_probs": [-1.0] * 3})
                if len(self.asked) == 1
                else output
            )

    student = Odd("ignored", "take<|im_end|>")
    found = play(student, observation("Room."), observation("A key."), observation("Won.", done=True))
    assert found.transcript.response_ids[:3] == odd
    assert (
        student.asked[1][1]
        == found.transcript.ids[: found.transcript.turns[1].start + len(found.transcript.prompt_ids)]
    )


def test_turns_tell_where_they_are_and_who_wrote_them():
    student = Student("go<|im_end|>", "take<|im_end|>")
    found = play(student, observation("Room."), observation("A key.", reward=0.25), observation("Won.", done=True))
    first, second = found.transcript.turns
    text = TOKENIZER.decode(found.transcript.response_ids[second.start : second.end])
    assert (first.start, first.end) == (0, 3) and text == "take<|im_end|>"
    assert (first.said, first.heard, first.reward) == ("go", "A key.", 0.25)
    assert first.versions == (1, 2) and found.transcript.versions == (1, 3)
    assert first.waiting > 0 and not first.limited
    assert found.transcript.log_probs[: first.end] == [-0.5] * 3
    assert found.transcript.log_probs[second.start :] == [-1.0] * 5
    assert {log for log, mark in zip(found.transcript.log_probs, found.transcript.mask, strict=True) if not mark} == {
        0.0
    }


def test_all_turns_are_one_request():
    student = Student("go<|im_end|>", "take<|im_end|>")
    play(student, observation("Room."), observation("A key."), observation("Won.", done=True))
    (request_id,) = {request_id for request_id, _, _ in student.asked}
    assert request_id and all(params["temperature"] == 1.0 for _, _, params in student.asked)


def test_the_last_turn_leaves_no_observation_behind():
    student = Student("go<|im_end|>", "take<|im_end|>")
    found = play(student, observation("Room."), observation("A key."), observation("A lock.", reward=0.5), turns=2)
    assert picture(found.transcript) == "go>[<user|A key.>|<assistant|]take>"
    assert (found.ending.limit, found.transcript.reward) == ("turns", 0.5)


def test_an_observation_that_leaves_no_room_is_left_out():
    answers = observation("Room."), observation("A very long story." * 10, reward=0.5)
    found = play(Student("go<|im_end|>"), *answers, response=100)
    assert picture(found.transcript) == "go>"
    assert (found.ending.limit, found.transcript.reward) == ("response_tokens", 0.5)
    assert found.transcript.turns[0].heard.startswith("A very long")


def test_a_turn_that_is_too_long_ends_the_episode_and_reaches_no_service():
    found = play(Student("go on and on and on<|im_end|>"), observation("Room."), turn_tokens=8)
    assert picture(found.transcript) == "go on an"
    assert found.ending.limit == "turn_tokens" and found.transcript.turns[0].limited
    assert found.transcript.reward == 0.0 and [message["type"] for message in found.server.received] == [
        "reset",
        "close",
    ]


def test_a_turn_that_ends_with_its_last_token_is_whole():
    found = play(Student("go<|im_end|>"), observation("Room."), observation("Won.", done=True), turn_tokens=3)
    assert not found.transcript.turns[0].limited and found.ending.limit is None


def test_the_response_limit_counts_for_all_turns_together():
    around = sum(len(TOKENIZER.encode(part, add_special_tokens=False)) for part in AROUND_USER)
    room = 3 + around + len("A key.") + 5
    student = Student("go<|im_end|>", "take the key<|im_end|>")
    found = play(student, observation("Room."), observation("A key."), response=room)
    assert picture(found.transcript).endswith("take t") or picture(found.transcript).endswith("take ")
    assert len(found.transcript.mask) == room and found.ending.limit == "response_tokens"
    assert student.asked[1][2]["max_tokens"] == room - found.transcript.turns[1].start


def test_a_first_text_that_does_not_fit_is_not_cut():
    with pytest.raises(PromptTooLong, match="the first text of the task has"):
        play(Student(), observation("Room." * 30))


def test_a_fault_of_the_service_is_no_observation():
    student = Student("go<|im_end|>")
    with pytest.raises(SessionFault, match="out of memory"):
        play(student, observation("Room."), error("EXECUTION_ERROR", "out of memory"))


def test_the_row_of_an_episode():
    student = Student("go<|im_end|>", "take<|im_end|>")
    found = play(
        student, observation("Room."), observation("A key.", reward=0.25), observation("Won.", reward=0.5, done=True)
    )
    row = found.loop.output_of(found.transcript, {"domain": "d"})
    assert row.reward_score == 0.75 and row.num_turns == 4
    assert row.extra_fields == {"min_global_steps": 1, "max_global_steps": 3, "domain": "d"}
    assert len(row.response_ids) == len(row.response_mask) == len(row.response_logprobs) and row.response_mask[-1] == 1
    assert row.metrics.tool_calls > 0
