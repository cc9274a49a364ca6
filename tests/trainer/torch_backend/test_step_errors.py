"""Test that known errors of a step become one line."""

import numpy as np
import pytest
import torch

from trainer.errors import TrainerError
from trainer.torch_backend.step_errors import report_failed_step

IMAGES = np.zeros((1, 1, 28, 20), np.float32)


def test_gpu_out_of_memory_is_one_line_with_advice() -> None:
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity\nof 16 GiB"
    with pytest.raises(TrainerError) as caught, report_failed_step(IMAGES.repeat(512, axis=0), timeout_s=1):
        raise torch.OutOfMemoryError(message)
    assert str(caught.value) == (
        "the GPU's memory is too small for 512 samples, try a smaller --batch-size, with a greater "
        "--gradient-accumulation for the same step: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 0 has a total capacity"
    )


def test_failing_compile_is_one_line() -> None:
    error = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    with (
        pytest.raises(TrainerError, match=r"^torch.compile failed, try --compile 0: raised: no g\+\+$"),
        report_failed_step(IMAGES, timeout_s=1),
    ):
        raise error("raised:\nno g++\n\nSet TORCHDYNAMO_VERBOSE=1")


def test_nondeterministic_operation_is_one_line() -> None:
    output = (
        "avg_pool3d_backward_cuda does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism"
    )
    with (
        pytest.raises(
            TrainerError, match=r"^--deterministic: avg_pool3d_\w+ does not have a .* implementation on this GPU$"
        ),
        report_failed_step(IMAGES, timeout_s=1),
    ):
        raise RuntimeError(output)


def test_error_in_the_network_keeps_its_traceback_and_logs_the_shape(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(RuntimeError, match="shapes"), report_failed_step(IMAGES, timeout_s=1):
        raise RuntimeError("shapes")
    assert caplog.messages == ["a step fails on images of 1,28,20 (channels, height, width)"]


def test_repeated_gradient_error_is_one_line() -> None:
    output = "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1)"
    with (
        pytest.raises(TrainerError, match=r"^a parameter got two gradients in one backward pass"),
        report_failed_step(IMAGES, timeout_s=1),
    ):
        raise RuntimeError(output)
