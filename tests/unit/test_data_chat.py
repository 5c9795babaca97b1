"""Real small tokenizers whose chat templates end a reply in different ways."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from onepo.data.chat import end_of_turn_token_id, prompt_text, prompt_token_ids, rollout_stop_ids
from onepo.errors import UserError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if no_think %}<think></think>{% endif %}{% endif %}"
)
BARE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
EOS_ONLY = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {{ eos_token }}{% endfor %}"
USER_ONLY = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
MESSAGES = [{"role": "user", "content": "Hé"}]


def build(template, *, eos="<|endoftext|>", special=("<|im_start|>", "<|im_end|>"), words=()):
    """Byte-level tokenizer without merges; ``words`` are ordinary entries of its vocabulary."""
    vocabulary = {token: number for number, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=eos, additional_special_tokens=list(special), chat_template=template
    )
    return fast


def token(tokenizer, text):
    return tokenizer.convert_tokens_to_ids(text)


def test_a_prompt_is_a_plain_list_of_ids_that_ends_where_the_reply_begins():
    tokenizer = build(CHATML)
    ids = prompt_token_ids(tokenizer, MESSAGES)
    assert type(ids) is list and all(type(number) is int for number in ids)
    assert tokenizer.decode(ids) == prompt_text(tokenizer, MESSAGES)
    assert prompt_text(tokenizer, MESSAGES) == "<|im_start|>user\nHé<|im_end|>\n<|im_start|>assistant\n"
    assert len(ids) == 3 + len("user\nHé\nassistant\n".encode())


def test_template_options_reach_the_template():
    assert prompt_text(build(CHATML), MESSAGES, no_think=True).endswith("<think></think>")
    longer = prompt_token_ids(build(CHATML), MESSAGES, no_think=True)
    assert len(longer) == len(prompt_token_ids(build(CHATML), MESSAGES)) + len("<think></think>")


def test_base_model_whose_eos_is_not_the_end_of_the_turn():
    tokenizer = build(CHATML)
    end, eos = token(tokenizer, "<|im_end|>"), tokenizer.eos_token_id
    assert end_of_turn_token_id(tokenizer) == end != eos
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=eos)) == (sorted([end, eos]), end)
    assert rollout_stop_ids(tokenizer, None) == (sorted([end, eos]), end)


def test_instruct_model_that_already_stops_at_the_end_of_the_turn():
    tokenizer = build(CHATML, eos="<|im_end|>", special=("<|im_start|>", "<|endoftext|>"))
    end, other = tokenizer.eos_token_id, token(tokenizer, "<|endoftext|>")
    assert end_of_turn_token_id(tokenizer) == end
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=[end, other])) == (sorted([end, other]), None)


def test_a_tokenizer_that_knows_the_end_does_not_help_an_engine_that_does_not():
    """An instruct model with its base model's generation config: the engine reads the latter alone."""
    tokenizer = build(CHATML, eos="<|im_end|>", special=("<|im_start|>", "<|endoftext|>"))
    end, other = tokenizer.eos_token_id, token(tokenizer, "<|endoftext|>")
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=other)) == (sorted([end, other]), end)


def test_base_tokenizer_with_a_generation_config_that_names_the_end_of_the_turn():
    tokenizer = build(CHATML)
    end, eos = token(tokenizer, "<|im_end|>"), tokenizer.eos_token_id
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=end)) == (sorted([end, eos]), None)


@pytest.mark.parametrize("template", [BARE, EOS_ONLY])
def test_a_template_without_a_token_of_its_own_leaves_the_eos_token(template):
    tokenizer = build(template)
    assert end_of_turn_token_id(tokenizer) == tokenizer.eos_token_id
    eos = tokenizer.eos_token_id
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=eos)) == ([eos], None)
    assert rollout_stop_ids(tokenizer, None) == ([eos], eos)


def test_an_ending_that_is_not_one_token_never_yields_its_first_piece():
    tokenizer = build(CHATML, special=())
    assert len(tokenizer("<|im_end|>")["input_ids"]) > 1
    assert end_of_turn_token_id(tokenizer) == tokenizer.eos_token_id


def test_an_ending_may_be_an_ordinary_word_of_the_vocabulary():
    tokenizer = build(CHATML, special=(), words=("<|im_end|>",))
    assert end_of_turn_token_id(tokenizer) == token(tokenizer, "<|im_end|>")


def test_a_tokenizer_without_any_end_is_refused():
    with pytest.raises(UserError, match="Set eos_token"):
        end_of_turn_token_id(build(BARE, eos=None))


@pytest.mark.parametrize(("configured", "expected"), [(None, [300]), (7, [7, 300]), ([9, 7, 300], [7, 9, 300])])
def test_stop_tokens_are_sorted_and_unique(configured, expected):
    tokenizer = build(BARE)
    tokenizer.add_tokens([f"<{number}>" for number in range(300 - len(tokenizer))])
    tokenizer.add_special_tokens({"eos_token": "<eos>"})
    assert tokenizer.eos_token_id == 300
    assert rollout_stop_ids(tokenizer, GenerationConfig(eos_token_id=configured))[0] == expected


def test_a_missing_chat_template_is_told():
    with pytest.raises(UserError, match=r"no chat template.*chat_template\.jinja"):
        prompt_token_ids(build(None), MESSAGES)


def test_a_template_that_refuses_the_roles_is_told():
    with pytest.raises(UserError, match=r"roles \(system, user\): no system role"):
        prompt_token_ids(build(USER_ONLY), [{"role": "system", "content": "x"}, *MESSAGES])
