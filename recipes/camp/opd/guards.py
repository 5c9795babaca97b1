"""Whether a teacher can score what a student writes: both must read the same tokens as the same text."""

import math
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from camp.configuration import Named
from camp.opd.server import SERVER
from camp.sizes import setting
from onepo.distillation.vocabulary import template_notes, vocabulary_problems
from onepo.endpoints.address import server_url
from onepo.errors import UserError, last_line
from onepo.preflight.model_directory import model_directory_problems
from onepo.preflight.server import server_problems
from onepo.settings import ScoringTeacherSettings

_CLAMP = "distillation.distillation_loss.loss_max_clamp"
_BOUNDS = {
    _CLAMP: (0, math.inf),
    "distillation.distillation_loss.clip_ratio_low": (0, 1),
    "distillation.distillation_loss.clip_ratio_high": (0, math.inf),
    "actor_rollout_ref.actor.clip_ratio_c": (1, math.inf),
}
_ENGINES = {True: ("transformers",), False: ("sglang", "vllm")}  # by whether it is the CPU
# other values would be recorded as another experiment, and change nothing of what is learned
_READ_BY_NOTHING = {
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.actor.use_kl_loss": False,
    "algorithm.use_kl_in_reward": False,
    "distillation.distillation_loss.distillation_loss_coef": 1.0,
    "distillation.distillation_loss.loss_mode": "k1",
    "distillation.distillation_loss.use_policy_gradient": True,
    "distillation.distillation_loss.use_task_rewards": False,
}


def check_teacher(
    config: DictConfig, named: Named, settings: ScoringTeacherSettings, *, student_is_sound: bool
) -> tuple[list[str], list[str]]:
    """Problems of the teacher, and what a user should know of one that has none; nothing is started or asked."""
    problems = list(_form_problems(config, named, settings))
    directory = settings.tokenizer if named.teacher_is_served else named.teacher
    notes = [f"topk={config.distillation.distillation_loss.topk} is inactive: K1 asks for the sampled tokens alone"]
    if directory is None:
        notes.append(
            f"note: the tokenizer of the teacher at {named.teacher} is not known: that it reads the student's tokens "
            "is not checked (TEACHER_TOKENIZER, or camp.teacher.tokenizer, is the directory to compare)"
        )
    if problems or directory is None or not student_is_sound:
        return problems, notes
    try:
        student, teacher = _tokenizers(config, directory)
        problems += _context_problems(config, directory)
    except Exception as error:  # of the library, of whatever type
        return [f"{_directory_option(named)}={directory}: has no tokenizer that can be read: {last_line(error)}"], notes
    problems += [f"--teacher: {line}" for line in vocabulary_problems(student, teacher)]
    if Path(directory).resolve() == Path(config.actor_rollout_ref.model.path).resolve():
        notes.append("warning: the teacher is the student itself: there is nothing to learn")
    return problems, [*notes, *template_notes(student, teacher)]


def _form_problems(config: DictConfig, named: Named, settings: ScoringTeacherSettings) -> Iterator[str]:
    for key, value in _READ_BY_NOTHING.items():
        found = OmegaConf.select(config, key, default=value)
        if found != value:
            yield f"{key}={found}: K1 has {value}"
    for key, (lowest, highest) in _BOUNDS.items():
        found = OmegaConf.select(config, key)
        if found is None and key == _CLAMP:
            continue
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not lowest < found < highest:
            yield f"{key}={found}: must be a number above {lowest:g}" + (
                f" and below {highest:g}" if highest < math.inf else ""
            )
    temperature = config.actor_rollout_ref.rollout.temperature
    if temperature != 1:
        yield (
            f"actor_rollout_ref.rollout.temperature={temperature}: the teacher's probabilities are those at "
            "temperature 1, so the student must sample at 1"
        )
    if named.teacher_is_served:
        try:
            server_url(named.teacher)
        except UserError as error:
            yield f"--teacher: {error}"
        if settings.tokenizer is not None and not Path(settings.tokenizer).is_dir():
            yield f"{_directory_option(named)}={settings.tokenizer} is not an existing directory"
        if settings.server.start:
            yield (
                f"--teacher names a server that runs already, and {SERVER.options['start']}=1 "
                "(camp.teacher.server.start) starts one: leave it out, or name the teacher's directory"
            )
        return
    if settings.tokenizer is not None:
        yield "camp.teacher.tokenizer (TEACHER_TOKENIZER) is of a teacher behind an address: leave it out"
    for line in model_directory_problems(Path(named.teacher), "--teacher", trust_remote_code=False):
        own_code = "trust_remote_code" in line
        yield f"--teacher={named.teacher}: needs code of its own, which no teacher may have" if own_code else line
    if config.distillation.enabled:
        key = "distillation.teacher_models.teacher_model.inference.name"
        engine, engines = OmegaConf.select(config, key), _ENGINES[config.trainer.device == "cpu"]
        if engine not in engines:
            yield f"{key}={engine}: must be one of {', '.join(engines)}"
    if settings.server.start:
        yield from server_problems(config, settings.server, SERVER)


def _directory_option(named: Named) -> str:
    return "camp.teacher.tokenizer (TEACHER_TOKENIZER)" if named.teacher_is_served else "--teacher"


def _context_problems(config: DictConfig, directory: str) -> Iterator[str]:
    if not Path(directory, "config.json").is_file():
        return  # of a tokenizer alone; the teacher is asked for a whole row before the start
    longest = config.data.max_prompt_length + config.data.max_response_length + 1  # an engine writes one token more
    context = getattr(
        AutoConfig.from_pretrained(directory, trust_remote_code=False).get_text_config(),
        "max_position_embeddings",
        None,
    )
    if context is not None and longest > context:
        yield (
            f"--teacher: has {context} positions (max_position_embeddings in its config.json), and "
            f"{setting('data.max_prompt_length')} + {setting('data.max_response_length')} + 1 = {longest}"
        )


def _tokenizers(config: DictConfig, teacher: str) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    model = config.actor_rollout_ref.model
    student = AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
    return student, AutoTokenizer.from_pretrained(teacher, trust_remote_code=False)
