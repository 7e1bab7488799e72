"""Real task cards cut down to one small timed case, for tests that judge many candidates."""

from cudamaster.tasks import cards

SWEEPS = {
    "relu": {"N": [1024]},
    "spmv_csr": {"rows": [1024]},
    "dot_product": {"N": [65536]},
    "sorting": {"N": [1024]},
    "softmax_attention": {"q_seq_len": [64], "kv_seq_len": [512], "dim_qk": [128], "dim_v": [64]},
}


def small_card(task: str) -> cards.TaskCard:
    """The card with all its verification cases and one timed case."""
    fields = cards.load(task).model_dump()
    return cards.TaskCard.model_validate({**fields, "sweep": [SWEEPS[task]]})
