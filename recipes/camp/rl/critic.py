"""The process of a critic: what must be in place before verl builds it there."""

from verl.plugin.platform import get_platform
from verl.workers.engine_workers import TrainingWorker


class CriticWorker(TrainingWorker):
    """verl's training worker, with critics of model families that transformers or verl do not provide for."""

    def __init__(self, *args, **kwargs):
        provide_qwen3_5()
        if get_platform().device_name == "cpu":
            from onepo.backends.cpu.overrides import use_plain_attention_in_critic

            use_plain_attention_in_critic()
        super().__init__(*args, **kwargs)


def provide_qwen3_5() -> None:
    """Make Qwen3.5 known as a critic, with episodes kept apart that are packed into one row.

    transformers has no such class before 5.9. And verl tells a model where the episodes of a packed row begin only if
    its ``forward`` names the argument, which that of a token classifier does not: the state of the linear attention
    would run from one episode into the next.
    """
    from transformers import AutoModelForTokenClassification
    from transformers.modeling_layers import GenericForTokenClassification
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5PreTrainedModel

    class Qwen3_5Critic(GenericForTokenClassification, Qwen3_5PreTrainedModel):
        config: Qwen3_5Config

        def __init__(self, config: Qwen3_5Config):
            config.hidden_size = config.text_config.hidden_size  # where the value head looks for it
            super().__init__(config)

        def forward(self, input_ids=None, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs):
            if cu_seqlens is not None:
                kwargs |= {"cu_seqlens": cu_seqlens, "cu_seqlens_cpu": cu_seqlens_cpu}
            return super().forward(input_ids, **kwargs)

    AutoModelForTokenClassification.register(Qwen3_5Config, Qwen3_5Critic, exist_ok=True)
