"""Less of a task, for tests that need no more: a card with one small timed case, one of the two precisions."""

from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.tasks import cards

SWEEPS = {
    "relu": {"N": [1024]},
    "spmv_csr": {"rows": [1024]},
    "dot_product": {"N": [65536]},
    "sorting": {"N": [1024]},
    "softmax_attention": {"q_seq_len": [64], "kv_seq_len": [512], "dim_qk": [128], "dim_v": [64]},
}


def precision_tried(task: str) -> Precision:
    """The precision in which a test of all tasks tries one of them: from task to task the other one."""
    return list(BENCHMARK_PRECISIONS)[cards.names().index(task) % 2]


def small_card(task: str) -> cards.TaskCard:
    """The card with all its verification cases and one timed case."""
    fields = cards.load(task).model_dump()
    return cards.TaskCard.model_validate({**fields, "sweep": [SWEEPS[task]]})
