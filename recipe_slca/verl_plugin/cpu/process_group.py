"""torch process groups on the CPU.

verl asks for one backend for the CPU and one for the device. Where the device is the CPU that names it
twice, which torch refuses.
"""

import torch.distributed
import wrapt

_ASKED_FOR = "cpu:gloo,cpu:gloo"


def _init_process_group(wrapped, instance, args, kwargs):
    args = tuple("gloo" if argument == _ASKED_FOR else argument for argument in args)
    if kwargs.get("backend") == _ASKED_FOR:
        kwargs = {**kwargs, "backend": "gloo"}
    return wrapped(*args, **kwargs)


wrapt.wrap_function_wrapper(torch.distributed, "init_process_group", _init_process_group)
