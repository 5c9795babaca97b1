"""Cost of the OnePO loss next to verl's own clipped loss: forward and backward at 64 x 8000 in float32 on two threads.

Usage: python benchmarks/loss_overhead.py
Prints one table; exits 1 when OnePO needs more than 1.3 times the time or 1.2 times the peak tensor memory.

Time is the median of interleaved repeats, so that a busy machine slows both alike. Memory is the largest amount that
PyTorch's allocator holds beyond the inputs, which the profiler counts exactly; the size of the process would hide the
difference behind the interpreter.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.workers.config import ActorConfig

from onepo.algorithms.losses import onepo_policy_loss

ROWS, TOKENS, THREADS, REPEATS = 64, 8000, 2, 25
TEACHER_ROW_EVERY = 8
MAX_TIME_RATIO, MAX_MEMORY_RATIO = 1.3, 1.2
CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0}


def make_steps() -> dict[str, Callable[[], None]]:
    """One function per loss that runs its forward and backward pass on the same random batch."""
    generator = torch.Generator().manual_seed(0)
    old = -torch.empty(ROWS, TOKENS).exponential_(0.7, generator=generator)
    log_prob = (old + 0.2 * torch.randn(ROWS, TOKENS, generator=generator)).clamp(max=-1e-3).requires_grad_()
    advantages = torch.randn(ROWS, 1, generator=generator).expand(ROWS, TOKENS).contiguous()
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (ROWS, 1), generator=generator)
    mask = torch.arange(TOKENS) < lengths
    teacher = ((torch.arange(ROWS) % TEACHER_ROW_EVERY == 0)[:, None] & mask).contiguous()
    denominator = mask.sum()
    config = ActorConfig(strategy="fsdp2", rollout_n=8, ppo_micro_batch_size_per_gpu=1, **CLIP)
    config.global_batch_info["batch_num_tokens"] = denominator

    def onepo() -> None:
        loss, _ = onepo_policy_loss(
            log_prob=log_prob, old_log_prob=old, advantages=advantages, response_mask=mask, teacher_mask=teacher,
            probability_floor=0.1, denominator=denominator, **CLIP,
        )  # fmt: skip
        loss.backward()
        log_prob.grad = None

    def verl() -> None:
        loss, _ = compute_policy_loss_vanilla(old, log_prob, advantages, mask, "token-mean", config)
        loss.backward()
        log_prob.grad = None

    return {"onepo": onepo, "verl": verl}


def median_seconds(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds = {name: [] for name in steps}
    for _ in range(REPEATS):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_bytes(step: Callable[[], None]) -> int:
    """Largest sum of the allocations that ``step`` holds at one time, its gradient included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    held = peak = 0
    for event in events:
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def main() -> int:
    torch.set_num_threads(THREADS)
    steps = make_steps()
    for warm_up in steps.values():
        warm_up()
    seconds = median_seconds(steps)
    peaks = {name: peak_bytes(step) for name, step in steps.items()}
    time_ratio = seconds["onepo"] / seconds["verl"]
    memory_ratio = peaks["onepo"] / peaks["verl"]

    print(f"{ROWS} x {TOKENS} float32, {THREADS} threads, {REPEATS} repeats, forward and backward")
    print(f"{'':8}{'median ms':>12}{'peak MiB':>12}")
    for name in steps:
        print(f"{name:8}{seconds[name] * 1e3:12.2f}{peaks[name] / 2**20:12.2f}")
    print(f"{'ratio':8}{time_ratio:12.2f}{memory_ratio:12.2f}   (allowed {MAX_TIME_RATIO} and {MAX_MEMORY_RATIO})")
    return int(time_ratio > MAX_TIME_RATIO or memory_ratio > MAX_MEMORY_RATIO)


if __name__ == "__main__":
    sys.exit(main())
