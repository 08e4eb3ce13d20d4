"""Kafka and the reference answer the same drawn requests alike: whole and damaged ones, and those of a client with few permissions."""

from functools import partial
from pathlib import Path

import pytest

from tests.targets import drawn_damage, drawn_permissions, drawn_requests
from tests.targets.drawn_comparison import Compared, lasting
from tests.targets.drawn_requests import THROTTLED, TWO_DIRECTORIES, Clusters, Scene

pytestmark = [pytest.mark.process, pytest.mark.kafka]


def scene(each: Scene) -> Compared:
    return partial(drawn_requests.compared, clusters=Clusters(scene=each))


@pytest.mark.parametrize(
    ("compared", "seed", "requests"),
    [
        pytest.param(drawn_requests.compared, 7, 200, id="whole"),
        pytest.param(scene(TWO_DIRECTORIES), 1, 150, id="two-directories"),
        pytest.param(scene(THROTTLED), 1, 150, id="throttled"),
        pytest.param(drawn_damage.compared, 10, 150, id="damaged"),
        pytest.param(drawn_permissions.compared, 1, 150, id="few-permissions"),
    ],
)
def test_answers_are_alike(tmp_path: Path, compared: Compared, seed: int, requests: int) -> None:
    found = lasting(compared, tmp_path, seed, requests)
    assert not found, "\n".join(found)
