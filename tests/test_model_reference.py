"""Each family's slow reference gives what transformers answered, for every golden there is."""

import numpy as np
import pytest

from model.families.table import FAMILIES
from tests.family_goldens import golden_cases, load, served_folders, tolerance_of


@pytest.mark.parametrize("family, count", [
    ("distilbert", 1), ("electra", 1), ("roberta", 9), ("camembert", 1), ("xlm-roberta", 2),
    ("mpnet", 1), ("albert", 3), ("deberta-v2", 4), ("modernbert", 3)])
def test_reference_gives_every_golden(family, count, shared, tmp_path):
    folders = served_folders(shared)[family]
    assert len(folders) >= count
    for folder in folders:
        card, weights = load(folder, tmp_path)
        rows, expected = golden_cases(folder)
        found = FAMILIES[family].reference(card, weights, rows)
        assert found.dtype == np.float32 and found.shape == expected.shape
        assert np.abs(found - expected).max() <= tolerance_of(weights), folder.name
