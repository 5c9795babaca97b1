"""The data files."""

from collections.abc import Iterator

from omegaconf import DictConfig

from onepo.data.lengths import count_usable
from onepo.data.table import load_tasks
from onepo.errors import UserError
from onepo.preflight.student import load_tokenizer


def data_problems(config: DictConfig) -> Iterator[str]:
    tokenizer = load_tokenizer(config)
    for option, files in (("TRAIN_FILE", config.data.train_files), ("VAL_FILE", config.data.val_files)):
        if files is None:
            continue
        if not files or not all(isinstance(file, str) for file in ([files] if isinstance(files, str) else files)):
            yield f"{option}={files}: must be the path of a file, or a list of paths"
            continue
        try:
            tasks = load_tasks(files)
        except UserError as error:
            yield f"{option}: {error}"
            continue
        open_ended = tasks.column("type").to_pylist().count("open_ended")
        if open_ended:
            yield (
                f"{option}: {open_ended} of {len(tasks)} records are open-ended and need a grader, which this version "
                "does not have yet: use multiple-choice records only"
            )
        options = config.data.apply_chat_template_kwargs or {}
        usable, left_out = count_usable(tasks, tokenizer, config.data.max_prompt_length, **options)
        if option == "TRAIN_FILE" and usable < config.data.train_batch_size:
            reason = f" ({left_out} are over MAX_PROMPT_LENGTH={config.data.max_prompt_length})" if left_out else ""
            size = config.data.train_batch_size
            yield f"TRAIN_FILE: {usable} usable prompts{reason}, fewer than TRAIN_BATCH_SIZE={size}"
        if option == "VAL_FILE" and usable == 0:
            yield f"VAL_FILE: none of {len(tasks)} prompts fits into MAX_PROMPT_LENGTH={config.data.max_prompt_length}"
