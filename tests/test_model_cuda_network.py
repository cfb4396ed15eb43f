"""A whole network of 8 bits with our kernels in it, as TorchScript and as a capture sees it."""

import numpy as np
import pytest
import torch

from model.device import staging
from model.device.guard import CaptureGuard
from model.device.ladder import Shape
from model.programs.eight_bits import CODES, Operators
from model.programs.image import Image
from model.programs.on_device import padded_network
from model.programs.row_ops import PlainRows
from model.programs.script import script, settle
from tests import simulated_cuda
from tests.simulated_cuda import STREAM, NoCompiler
from tests.tiny_bert import make_model, make_rows

HIDDEN, INTERMEDIATE, SHAPE = 128, 512, Shape(24, 4)
# Of logits around 2: a code more or less here and there, and the wide type's own rounding.
ALLOWED = {torch.float16: 0.03, torch.bfloat16: 0.12}


class Place:
    """What a port is to the making of a network."""

    capability = (0, 0)

    @staticmethod
    def upload(tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def launched(card, rows) -> list:
    """What a network takes for these rows."""
    numbers = np.zeros(staging.size(SHAPE), np.int32)
    staging.fill(numbers, SHAPE, rows, card["settings"]["max_position_embeddings"])
    ids, places, lengths = torch.from_numpy(numbers).split(
        [SHAPE.tokens, SHAPE.tokens, SHAPE.batch])
    steps = torch.arange(SHAPE.batch + 1, dtype=torch.int32)
    return [ids, places, lengths, steps, steps * SHAPE.length, SHAPE.length]


@pytest.mark.parametrize("kind, wide", [("int8", torch.float16), ("fp8", torch.bfloat16)])
def test_kernels_in_a_network_answer_as_torchs_operators_do(tmp_path, kind, wide):
    try:
        driver = simulated_cuda.build_driver(tmp_path)
        kernels = simulated_cuda.row_kernels(tmp_path, driver, CODES[kind], wide)
    except NoCompiler as error:
        pytest.skip(str(error))
    kernels.prepare(HIDDEN, INTERMEDIATE)
    settle()
    card, image = make_model(hidden_size=HIDDEN, intermediate_size=INTERMEDIATE,
                             num_hidden_layers=3)
    rows = make_rows(card, [24, 1, 13])
    found = []
    for ops in (PlainRows(CODES[kind], wide), kernels):
        network = script(padded_network(card, Image(image), wide, Place(),
                                        Operators(kind, wide, wide, ops)))
        with torch.inference_mode(), torch.jit.optimized_execution(False), CaptureGuard():
            found.append(network(*launched(card, rows))[:len(rows)])
    assert (found[0] - found[1]).abs().max() < ALLOWED[wide]
    assert driver.stand_in_stream() == STREAM
