"""How much of a piece of work's time passes within its products and convolutions, as it runs.

A product that is timed alone finds its matrices in the cache, where the last trial has left them; in a step they come
from memory, after all else that the step has touched. So the share of a limit that is put together from such trials can
not reach 1. This share can: what is missing is the work that is neither product nor convolution.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

#: By the profiler's names. oneDNN's recurrent layers have their gates in them too.
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "mkldnn_convolution",
        "_slow_conv2d_forward",
        "_slow_conv2d_backward",
        "convolution_backward",
        "mkldnn_rnn_layer",
        "mkldnn_rnn_layer_backward",
    )
)


def share_within_products(work: Callable[[], object]) -> float:
    """The share of its time, from 0 to 1; a little too low, since each small operation is written down as well.

    >>> from torch import ones
    >>> matrix = ones(300, 300)
    >>> 0.5 < share_within_products(lambda: [matrix @ matrix for _ in range(20)]) <= 1.0
    True
    """
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    events = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    return sum(event.self_cpu_time_total for event in events if event.key in _PRODUCTS) / total if total else 0.0
