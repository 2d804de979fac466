from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reefkit.errors import DoesNotHold
from reefkit.recover.adapter.config.floats import decode, rounded, spacing

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NUMBERS = st.floats(2.0**-13, 6e4).flatmap(lambda size: st.sampled_from([size, -size]))


@given(value=_NUMBERS, dtype=st.sampled_from(list(_DTYPES)))
def test_rounding_is_that_of_a_cast(value: float, dtype: str) -> None:
    cast = torch.tensor([value], dtype=torch.float64).to(_DTYPES[dtype]).to(torch.float64)

    assert rounded(np.array([value]), dtype)[0] == cast.item()


@given(value=_NUMBERS, dtype=st.sampled_from(list(_DTYPES)))
def test_bytes_become_the_values_that_they_mean(value: float, dtype: str) -> None:
    tensor = torch.tensor([value]).to(_DTYPES[dtype])
    data = bytes(tensor.view(torch.uint8).numpy())

    assert decode(data, dtype, "x")[0] == tensor.to(torch.float64).item()


@given(value=st.floats(2.0**-13, 6e4), dtype=st.sampled_from(list(_DTYPES)))
def test_the_spacing_is_the_distance_to_the_next_value(value: float, dtype: str) -> None:
    here = torch.tensor([value]).to(_DTYPES[dtype])
    following = torch.nextafter(here, torch.full_like(here, torch.inf))

    step = following.to(torch.float64) - here.to(torch.float64)

    assert spacing(np.array([here.item()]), dtype)[0] == step.item()


def test_integers_are_no_scale() -> None:
    with pytest.raises(DoesNotHold):
        decode(b"\0", "I8", "x")
