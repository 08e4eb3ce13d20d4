"""A real Apache Kafka is started, killed, reconfigured and stopped; where it does not start, the error has the end of its log."""

import pytest

from linearizability.targets import TargetError, open_target
from linearizability.targets.wire import Wire, answers
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    config = {
        "log.retention.ms": "12345678",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
    }
    with open_target("kafka:4.3.1", folder=folder, config=config) as target:
        yield target
    assert not target.running(1)
    assert not (folder / "target" / "node-1" / "data").exists()
    assert "KafkaRaftServer" in (folder / "target" / "node-1" / "node.log").read_text()


def broker_config(target, name: str) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=[name]
    )
    with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
        answer = wire.call(DescribeConfigsRequest(resources=[resource]))
    return answer.results[0].configs[0].value


def test_it_serves_topics_with_the_given_configuration(kafka):
    node = kafka.nodes[0]
    topic = CreateTopicsRequest.CreatableTopic(name="first", num_partitions=1, replication_factor=1)
    with Wire.connect(node.host, node.port) as wire:
        assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
    assert broker_config(kafka, "log.retention.ms") == "12345678"


def test_kill_and_restart_keep_its_address(kafka):
    node = kafka.nodes[0]
    kafka.kill(1)
    assert not kafka.running(1)
    assert not answers(node.host, node.port)
    kafka.restart(1)
    assert answers(node.host, node.port)


def test_config_restarts_it_with_the_change(kafka):
    kafka.config(1, {"log.retention.ms": "87654321"})
    assert broker_config(kafka, "log.retention.ms") == "87654321"


def test_a_start_that_fails_shows_what_the_broker_said(tmp_path):
    with (
        pytest.raises(TargetError, match=r"ended with exit code 1 before it answered(.|\n)*log\.retention\.ms"),
        open_target("kafka:4.3.1", folder=tmp_path, config={"log.retention.ms": "soon"}),
    ):
        pass
