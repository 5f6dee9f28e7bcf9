"""An ml_dtypes that does not know all types of safetensors yet: of those, elements are bytes."""

import ml_dtypes
import numpy as np
import pytest
from tests.support.safetensors_files import write_safetensors

import onecopy as oc
from onecopy.arrays.file import dtype_of


def test_a_type_that_ml_dtypes_does_not_have_is_bytes_that_know_what_they_are(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_safetensors(tmp_path / "scales.safetensors", {"a": b"\x7f\x80"}, dtype="F8_E8M0")
    with oc.open(path) as file:
        assert file["a"].dtype == np.dtype(ml_dtypes.float8_e8m0fnu)
        monkeypatch.delattr(ml_dtypes, "float8_e8m0fnu")  # it came with 0.5
        dtype_of.cache_clear()
        assert (file["a"].dtype.kind, file["a"].dtype.metadata) == ("V", {"onecopy": "F8_E8M0"})
        assert file["a"].tobytes() == b"\x7f\x80"
    dtype_of.cache_clear()
