"""Tests that use a model: pytest -n 4 checked.py."""

import model
import pytest


@pytest.fixture(scope="session")
def loaded():
    return model.load()


@pytest.mark.parametrize("number", range(4))
def test_it_answers(loaded, number):
    model.answer_together(loaded)
