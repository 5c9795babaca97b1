"""What a grader's messages say: the options that it is set by, and what its unusable output points to."""

from onepo.endpoints.chat import Completion
from onepo.endpoints.explain import EndpointOptions
from onepo.rewards.grader import shown

GRADER = EndpointOptions(
    who="grader",
    work="grading",
    url="REWARD_MODEL_URL",
    model="REWARD_MODEL_NAME",
    api_key="REWARD_MODEL_API_KEY",
    timeout="REWARD_MODEL_TIMEOUT",
    max_tokens="REWARD_MODEL_MAX_TOKENS",
    refusal="It takes no request for a grading: look at what REWARD_MODEL_EXTRA_BODY adds, and at the grader's log",
)
_CUT = "the token limit cuts it off"


def unusable_output(
    completion: Completion, *, options: EndpointOptions, model: str, attempts: int, max_tokens: int
) -> str:
    """The message for a grader whose outputs are no gradings, with the last of them."""
    limit = f"{options.max_tokens} (now {max_tokens})"
    cut = completion.finish_reason == "length"
    if completion.reasoning or "<think>" in completion.text:
        seen = f"Thinking seems to be on, and {_CUT}" if cut else "Thinking seems to be on"
        advice = f"{seen}: switch it off with REWARD_MODEL_EXTRA_BODY, or raise {limit}."
    elif cut:
        advice = f"{_CUT.capitalize()}: raise {limit}, or switch thinking off with REWARD_MODEL_EXTRA_BODY if it is on."
    else:
        advice = "Use a grader that follows instructions, or another REWARD_PROMPT_FILE."
    return (
        f"{options.model}={model}: asked for a JSON list with true or false for each of 3 criteria, the grader wrote "
        f"none in {attempts} attempts; its last output was {shown(completion.text)}. {advice}"
    )
