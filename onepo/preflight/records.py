"""The data files."""

from collections import Counter

from omegaconf import DictConfig

from onepo.data.lengths import count_usable
from onepo.data.schema import CUSTOM, OPEN_ENDED
from onepo.data.table import load_tasks
from onepo.errors import UserError
from onepo.preflight.student import load_tokenizer


class DataFiles:
    """What a run is to read, looked at once.

    Attributes:
        problems: what is wrong with the files, in the words of the launcher's options.
        open_ended: number of records that need a grader.
        custom: number of records that need the user's reward function.
        train_prompts: number of training prompts that are short enough.
    """

    def __init__(self, config: DictConfig):
        self.problems: list[str] = []
        self.open_ended = self.custom = self.train_prompts = 0
        self._config = config
        self._tokenizer = load_tokenizer(config)
        for option, files in (("TRAIN_FILE", config.data.train_files), ("VAL_FILE", config.data.val_files)):
            if files is not None:
                self._look_at(option, files)

    def _look_at(self, option: str, files: object) -> None:
        data = self._config.data
        if not files or not all(isinstance(file, str) for file in ([files] if isinstance(files, str) else files)):
            self.problems.append(f"{option}={files}: must be the path of a file, or a list of paths")
            return
        try:
            tasks = load_tasks(files)
        except UserError as error:
            self.problems.append(f"{option}: {error}")
            return
        types = Counter(tasks.column("type").to_pylist())
        self.open_ended += types[OPEN_ENDED]
        self.custom += types[CUSTOM]
        options = data.apply_chat_template_kwargs or {}
        usable, left_out = count_usable(tasks, self._tokenizer, data.max_prompt_length, **options)
        if option == "TRAIN_FILE":
            self.train_prompts = usable
        if option == "TRAIN_FILE" and usable < data.train_batch_size:
            reason = f" ({left_out} are over MAX_PROMPT_LENGTH={data.max_prompt_length})" if left_out else ""
            self.problems.append(
                f"TRAIN_FILE: {usable} usable prompts{reason}, fewer than TRAIN_BATCH_SIZE={data.train_batch_size}"
            )
        if option == "VAL_FILE" and usable == 0:
            self.problems.append(
                f"VAL_FILE: none of {len(tasks)} prompts fits into MAX_PROMPT_LENGTH={data.max_prompt_length}"
            )
