"""What will do for a version that was asked for (R27), the same in Python as in the store."""

from __future__ import annotations

import pytest
from treadle.shared.versions import does, parted, shelf, spoken, versioned


@pytest.mark.parametrize(
    ("registered", "asked", "will_do"),
    [
        ("index", "index", True),
        ("index", "audit", False),
        ("index", "index~1.0.0", False),
        ("index~1.4.2", "index", False),
        ("index~1.4.2", "index~1.4.2", True),
        ("index~1.4.2", "index~1.4.1", True),
        ("index~1.4.2", "index~1.3.9", True),
        ("index~1.10.0", "index~1.9.0", True),
        ("index~1.4.2", "index~1.4.3", False),
        ("index~1.4.2", "index~1.5.0", False),
        ("index~2.0.0", "index~1.0.0", False),
        ("index~1.0.0", "index~2.0.0", False),
        ("index~11.0.0", "index~1.0.0", False),
        ("reindex~1.0.0", "index~1.0.0", False),
    ],
)
def test_r27_a_later_minor_or_patch_of_the_same_major_number_will_do(
    registered: str, asked: str, will_do: bool
) -> None:
    assert does(registered, asked) is will_do


def test_a_capability_has_a_name_a_version_and_a_place() -> None:
    assert versioned("index", "1.2.0") == "index~1.2.0"
    assert versioned("index", "1.2.0-rc.1") == "index~1.2.0"
    assert versioned("index", "") == "index"
    assert (parted("index~1.2.0"), parted("index")) == (("index", "1.2.0"), ("index", ""))
    assert (shelf("index~1.2.0"), shelf("index")) == ("index~1", "index")
    assert spoken("index~1.2.0") == "index 1.2.0 or a later 1.x"
    assert spoken("index") == "index"
