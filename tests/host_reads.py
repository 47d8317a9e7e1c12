"""Record what a GPU would make the host wait for, while code runs on a CPU."""

from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.encoders.cpu import attention, dropout
from lightning_cse.encoders.passes import Passes

READS = {
    "_local_scalar_dense",  # item(), bool(), int(), tolist()
    "_unique2",
    "equal",
    "is_nonzero",
    "lift_fresh",  # torch.tensor(values, device=...) waits until the values are there
    "masked_select",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
}


class HostReads(TorchDispatchMode):
    """Record the operations that would make the host wait."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.in_main_memory = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name == "_pack_padded_sequence":  # an LSTM's sizes of batches are never on a device
            self.in_main_memory.add(storage(result[1]))

        has_mask = name in ("index", "index_put", "index_put_") and any(map(is_mask, args[1]))
        if (name in READS or has_mask) and storage(args[0]) not in self.in_main_memory:
            self.names.append(name)

        return result


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


def is_mask(index):
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


@contextmanager
def host_reads():
    """Yield the list of the reads in a context, where the encoder and its dropout take the way that
    they take on a GPU. What is in main memory anyway is NumPy's, and no operation of torch.
    """
    with pytest.MonkeyPatch.context() as patch, HostReads() as mode:
        patch.setattr(SentenceEncoder, "passes", lambda *_: Passes)
        patch.setattr(torch, "from_numpy", unrecorded(torch.from_numpy))
        for module in (attention, dropout):
            patch.setattr(module, "is_fast", lambda *_: False)

        yield mode.names


def unrecorded(function):
    def outside(*arguments):
        with _disable_current_modes():
            return function(*arguments)

    return outside
