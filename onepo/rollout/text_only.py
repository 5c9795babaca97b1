"""Rows of a student that has a processor for images too, and is used for text."""

import torch
from verl.utils.model import compute_position_id_with_mask

_AXES = 4  # text, time, height, width: the axes that verl's rows have for every processor with ``get_rope_index``


class TextOnly:
    """The hooks of verl's agent-loop worker that look for images in a row; a part of ``OnePOAgentLoopWorker``.

    No record of ours has an image, but a response may contain an image's placeholder (students of random or little
    trained weights write it, and so can a teacher's text). Upstream then asks for the image and the rollout is lost.
    """

    def _compute_multi_modal_inputs(self, output, input_ids) -> dict[str, torch.Tensor]:
        return {}

    def _compute_position_ids(self, input_ids, attention_mask, multi_modal_inputs, mm_processor_kwargs=None):
        """Positions of text, [B, T]; with ``get_rope_index`` the same ones along every axis, [B, 4, T]."""
        positions = compute_position_id_with_mask(attention_mask)
        if not hasattr(self.processor, "get_rope_index"):
            return positions
        return positions[:, None].expand(-1, _AXES, -1)
