"""verl's ragged rows as rectangles [B, T], for losses that know nothing of verl."""

from collections.abc import Iterable

import torch
from tensordict import TensorDict

from onepo.errors import ControlledStop


def response_window(rows: Iterable[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Values of response tokens, a tensor for each row, as [B, T] with the type and place of another tensor.

    Rows that verl adds to fill up a batch copy the fields of another row, whose length need not be theirs; their
    response mask is 0, so what is cut off or filled in here never counts.
    """
    window = torch.zeros_like(like)
    for row, values in enumerate(rows):
        length = min(len(values), window.shape[1])
        window[row, :length] = values[:length].to(window.device)
    return window


def refuse_non_finite(data: TensorDict, mask: torch.Tensor, *tensors: torch.Tensor, dp_group) -> None:
    """Stop the run rather than learn from what is no number.

    Args:
        data: of the micro-batch, which names its rows.
        mask: [B, T], the tokens that count.
        tensors: [B, T] each.

    Raises:
        ControlledStop: in all ranks, when one of them has such a value; the rows are named.
    """
    bad_rows = torch.stack([(~torch.isfinite(tensor) & mask).any(dim=1) for tensor in tensors]).any(dim=0)  # [B]
    # every rank must raise together: one that went on would wait for the others in a collective for ever
    anywhere = bad_rows.any().to(torch.int32)
    if dp_group is not None:
        torch.distributed.all_reduce(anywhere, op=torch.distributed.ReduceOp.MAX, group=dp_group)
    if not anywhere:
        return
    uids = [uid for uid, bad in zip(data["uid"], bad_rows.tolist(), strict=True) if bad]
    where = f"prompts {uids}" if uids else "rows of another rank"
    raise ControlledStop(
        f"step {data['global_steps'][0]}: a log-probability or advantage is not finite in {where}; "
        "this mini-batch was not learned",
        exit_code=3,
    )
