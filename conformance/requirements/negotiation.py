"""API: version negotiation. The versions that a broker advertises, and whether it serves them."""

from conformance.answers import AnswerParts, error_name, errors_in
from conformance.broker import Broker
from conformance.minimal import CORE, minimal_request
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement, version_key
from conformance.results import Verdict
from conformance.wire import Misbehaved, request_header
from conformance.wire import frame as framed
from reference.protocol.apis import APIS
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

API_VERSIONS, PRODUCE, CONTROLLED_SHUTDOWN = 18, 0, 7
ADVERTISED_ONLY = range(3)
"""Versions of Produce that Kafka 4 advertises because old librdkafka needs that, and does not serve (KAFKA-18659)."""

JOIN_GROUP = 11
LOWEST_JOIN_GROUP_OF_4_0_0 = 2
"""The lowest version of JoinGroup in Kafka 4.0.0. 4.0.1 and 4.1.0 serve v0 and v1 again, because librdkafka needs them
(KAFKA-19444)."""

NEXT_WITHIN_S = 5.0
UNKNOWN_EPOCH = -1
QUOTA_WINDOW_MS = 1_000
"""The longest throttle time of a request quota (quota.window.size.seconds)."""


def named(name: str = "tidegauge", version: str = "1.0") -> ApiVersionsRequest:
    """ApiVersions v3+ with the client's name and version."""
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def only_advertised(broker: Broker, key: int, version: int) -> bool:
    """Whether Kafka advertises a version on purpose without serving it."""
    return key == PRODUCE and version in ADVERTISED_ONLY and broker.is_kafka("4.0")


def served(broker: Broker, version: int) -> bool:
    """Whether the target serves a version of Produce that Kafka only advertises."""
    topic = broker.topic()
    try:
        with broker.connect(broker.leader(topic)) as connection:
            connection.call(minimal_request(broker, "Produce", version, topic), version)
    except Misbehaved:
        return False
    return True


@requirement(
    "API-01",
    notices="stuck: Java, librdkafka and franz-go ask this before all else, and go no further without an answer",
    source="KIP-35; KafkaApis.handleApiVersionsRequest",
    sentence="ApiVersions v0 as the first request is answered without error by a list that holds ApiVersions itself.",
    accepted="error NONE(0), ApiVersions from version 0 on",
)
def first_request(broker: Broker) -> None:
    answer = broker.connect().call(ApiVersionsRequest(), 0)
    broker.expect_error(answer.error_code, ErrorCode.NONE)
    own = [api for api in answer.api_keys if api.api_key == API_VERSIONS]
    broker.expect(
        len(own) == 1 and own[0].min_version == 0, f"{len(answer.api_keys)} APIs, ApiVersions from v0 on among them"
    )


@requirement(
    "API-02",
    notices="stuck: Java and librdkafka ask again in the version that this answer names; else they connect for ever",
    source="KIP-511; ApiVersionsRequest.getErrorResponse",
    sentence="ApiVersions in a version above the broker's is answered in the layout of v0 with UNSUPPORTED_VERSION and the "
    "range of ApiVersions, so that a client can ask again at once on the same connection.",
    accepted="UNSUPPORTED_VERSION(35) in v0 layout, the range of ApiVersions in the list, the connection goes on",
    apis={"ApiVersions": 0},
    since="2.4",
)
def version_above_highest(broker: Broker) -> None:
    lowest, highest = broker.subject.api_versions[API_VERSIONS]
    connection = broker.connect()
    for version in (highest + 1, 32767):
        header = request_header(API_VERSIONS, version, version, "tidegauge", flexible=True)
        body = encode(named(), 3)
        connection.send_bytes(framed(header + body), api_key=API_VERSIONS, version=version, awaited=True)
        answer = connection.receive(version=0)
        broker.expect_error(answer.error_code, ErrorCode.UNSUPPORTED_VERSION, what=f"ApiVersions v{version}")
        ranges = AnswerParts({api.api_key: (api.min_version, api.max_version) for api in answer.api_keys})
        broker.expect_equal("the range of ApiVersions in the refusal", ranges.get(API_VERSIONS), (lowest, highest))
    broker.expect_error(connection.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, what="v0 afterwards")


@requirement(
    "API-03",
    notices="none seen: librdkafka and Java write their names so that they are valid; the name is for the broker's metrics",
    source="KIP-511; ApiVersionsRequest.isValid",
    sentence="ApiVersions v3+ with a client software name or version that is empty or has characters other than letters, "
    "digits, dots and inner dashes is refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42) for each; a name with inner dots and dashes is accepted",
    apis={"ApiVersions": 3},
)
def invalid_software_name(broker: Broker) -> None:
    connection = broker.connect()
    for name, version in (
        ("", "1"),
        ("a", ""),
        ("-a", "1"),
        ("a-", "1"),
        (".a", "1"),
        ("a b", "1"),
        ("a", "1 0"),
        ("ä", "1"),
    ):
        answer = connection.call(named(name, version), 3)
        broker.expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, what=f"{name!r} {version!r}")
    answer = connection.call(named("apache-kafka.java", "4.3.1-rc0"), 3)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="'apache-kafka.java' '4.3.1-rc0'")


def _name_of(key: int) -> str:
    return f"{APIS[key].name} ({key})" if key in APIS else f"API key {key}"


@requirement(
    "API-04",
    notices="client: all look up one range a key and take the highest common version; of two ranges they keep one",
    source="KIP-35",
    sentence="Each advertised range has its lowest version at or below its highest, and no API is listed twice.",
    accepted="0 <= lowest <= highest for each API key, each once, in every version of ApiVersions",
)
def sane_ranges(broker: Broker) -> None:
    connection = broker.connect()
    lowest, highest = broker.versions_of(ApiVersionsRequest)
    for version in range(lowest, highest + 1):
        listed = connection.call(named() if version >= 3 else ApiVersionsRequest(), version).api_keys
        bad = [api for api in listed if not 0 <= api.min_version <= api.max_version]
        wrong = [f"{_name_of(api.api_key)} v{api.min_version} to v{api.max_version}" for api in bad]
        but_not = f", but not {', '.join(wrong)}" if wrong else ""
        broker.expect(not wrong, f"v{version}: the ranges of {len(listed)} APIs are in order{but_not}")
        keys = [api.api_key for api in listed]
        broker.expect_equal(f"v{version}: keys listed twice", sorted({key for key in keys if keys.count(key) > 1}), [])


@requirement(
    "API-05",
    notices="stuck: all use the highest version that both know, so one that is not served ends what needs it",
    source="KIP-35; message schemas",
    sentence="Every advertised version of every API is really served: a minimal valid request gets an answer in that "
    "version's layout, and where it names things that exist, no error.",
    accepted="an answer that is read to its last byte; no UNKNOWN_SERVER_ERROR(-1) in it; ApiVersions is answered after it on "
    "the same connection, for the request was read to its last byte, too",
    tolerated="UNSUPPORTED_VERSION(35) in the answer: so a feature says that it is switched off",
    deadline_s=180,
)
def every_version_is_served(broker: Broker) -> None:
    topic = broker.topic()
    broker.entrance = broker.leader(topic)
    if InitProducerIdRequest.KEY in broker.subject.api_versions:
        broker.producer_id()  # wait for the first producer id: a broker fetches them in blocks
        broker.hang_up([broker.entrance])
    next_in = broker.versions_of(ApiVersionsRequest)[0]
    asked: list[tuple[str, int, int]] = []
    for key, (lowest, highest) in sorted(broker.subject.api_versions.items()):
        if key in APIS:
            asked += [(f"{APIS[key].name} v{version}", key, version) for version in range(lowest, highest + 1)]
        else:
            broker.saw(f"API {key} is not known to this suite")
    ended, lethal = "", broker.subject.profile.lethal
    for case, key, version in sorted(asked, key=lambda one: one[0] in lethal):
        with broker.case(case, deadline_s=15):
            if ended:
                broker.skip(f"the target had ended after {ended}")
            if only_advertised(broker, key, version):
                broker.skip("advertised for old librdkafka's sake, and not served (KAFKA-18659): see API-06")
            if version not in APIS[key].request.VERSIONS:
                broker.skip("a version that this suite does not know")
            answer = broker.call(minimal_request(broker, APIS[key].name, version, topic), version)
            errors = {code for code in errors_in(answer) if code}
            try:
                broker.call(named() if next_in >= 3 else ApiVersionsRequest(), next_in, timeout_s=NEXT_WITHIN_S)
            except Misbehaved as failure:
                broker.fail(f"answered, and the next request on its connection is not: {failure}")
            bad = errors if APIS[key].name in CORE else errors & {ErrorCode.UNKNOWN_SERVER_ERROR}
            broker.expect(not bad, f"answered{' with ' + ', '.join(map(error_name, errors)) if errors else ''}")
            if ErrorCode.UNSUPPORTED_VERSION in errors:
                broker.tolerate("answered with UNSUPPORTED_VERSION(35): the feature is switched off")
        if not ended and broker.cases[-1].verdict is Verdict.FAIL and has_ended(broker):
            ended = case
            lethal += [case] * (case not in lethal)  # a second run asks this version last


def has_ended(broker: Broker) -> bool:
    """Whether the target takes no connection, or does not answer on it."""
    try:
        broker.api_versions()
    except Misbehaved:
        return True
    return False


@requirement(
    "API-06",
    notices="none seen: all clients stay within the advertised range",
    source="SocketServer.processCompletedReceives; KAFKA-18659",
    sentence="A version just below the lowest or just above the highest that is advertised closes the connection without an "
    "answer, for every API but ApiVersions.",
    accepted="closed without an answer (ControlledShutdown since 1.0, KAFKA-2507); so do "
    "Produce v0 to v2 on Kafka 4, which "
    "advertises them and does not serve them",
    deadline_s=90,
    apis={"ApiVersions": 0},
)
def outside_of_the_ranges(broker: Broker) -> None:
    for key, (lowest, highest) in sorted(broker.subject.api_versions.items()):
        if key == API_VERSIONS or key not in APIS or (key == CONTROLLED_SHUTDOWN and not broker.is_kafka("1.0")):
            continue
        outside = [lowest - 1] * (lowest > 0) + [highest + 1]
        if only_advertised(broker, key, 0):
            outside += [version for version in ADVERTISED_ONLY if version >= lowest and not served(broker, version)]
        for version in outside:
            with broker.case(f"{APIS[key].name} v{version}"), broker.connect() as connection:
                flexible = version in APIS[key].request.FLEXIBLE
                header = request_header(key, version, 7, "tidegauge", flexible=flexible)
                connection.send_bytes(framed(header + bytes(64)), note=f"{APIS[key].name} v{version}")
                broker.expect_closed(connection)


@requirement(
    "API-07",
    notices="none seen: clients ask once a connection, before all else",
    source="KafkaApis.handleApiVersionsRequest",
    sentence="ApiVersions can be asked again on the same connection, between other requests, with the same answer.",
    accepted="three equal answers",
)
def asked_again(broker: Broker) -> None:
    connection = broker.connect()
    answers: list[ApiVersionsResponse] = []
    for _ in range(3):
        answers.append(connection.call(ApiVersionsRequest(), 0))
        broker.metadata([], to=connection)
    broker.expect(answers[0] == answers[1] == answers[2], "three answers on one connection are equal")


@requirement(
    "API-08",
    notices="client: Java's producer chooses its transaction protocol by the finalized transaction.version",
    source="KIP-584; ApiVersionsResponse schema",
    sentence="ApiVersions v3+ lists the finalized features with their levels and epoch, each within what is supported.",
    accepted="metadata.version among them, levels within the supported range, an epoch of 0 or more",
    tolerated="no features at all, in an epoch that is unknown (-1): producers take the oldest protocol then",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    apis={"ApiVersions": 3},
)
def finalized_features(broker: Broker) -> None:
    answer = broker.connect().call(named(), broker.version_for(ApiVersionsRequest))
    supported = AnswerParts({feature.name: feature for feature in answer.supported_features})
    if (
        not answer.supported_features
        and not answer.finalized_features
        and answer.finalized_features_epoch == UNKNOWN_EPOCH
    ):
        broker.tolerate("no feature is supported")
        return
    broker.expect(
        answer.finalized_features_epoch >= 0, f"the features' epoch is 0 or more: {answer.finalized_features_epoch}"
    )
    for feature in answer.finalized_features:
        limits = supported.get(feature.name)
        reported = f"{feature.name} is at {feature.max_version_level}"
        inside = limits is not None and limits.min_version <= feature.max_version_level <= limits.max_version
        broker.expect(
            inside, f"{reported}, within what is supported" if inside else f"{reported}, which is not supported"
        )
    names = [feature.name for feature in answer.finalized_features]
    broker.expect("metadata.version" in names, f"metadata.version is among the finalized features: {', '.join(names)}")


@requirement(
    "API-10",
    notices="stuck: Java of before 4.0 throws at a feature whose lowest level is 0 (KAFKA-17011), and cannot connect",
    source="KIP-1022; KafkaApis.handleApiVersionsRequest",
    sentence="ApiVersions v4+ lists supported features whose lowest level is 0; below v4 they are left out.",
    accepted="v3 lists no feature with lowest level 0, and v4 lists at least those of v3",
    apis={"ApiVersions": 4},
)
def features_from_level_zero(broker: Broker) -> None:
    connection = broker.connect()
    old = AnswerParts({one.name: one.min_version for one in connection.call(named(), 3).supported_features})
    new = AnswerParts({one.name: one.min_version for one in connection.call(named(), 4).supported_features})
    if not new:
        broker.skip("the target lists no supported features")
    broker.expect(0 not in old.values(), f"v3 lists {len(old)} features, none from level 0")
    broker.expect(
        set(old) <= set(new), f"v4 lists {len(new)}, {', '.join(sorted(set(new) - set(old))) or 'no others'} more"
    )


@requirement(
    "API-11",
    notices="client: one that has dropped the versions that are missing (Java 4 those before Kafka 2.1) cannot do this here",
    source="KIP-896; message schemas of the release's kafka-clients",
    sentence="Each API that is advertised is served in all versions in which the Kafka release that is asked for serves it.",
    accepted="the advertised range holds the release's range, or what both the release before and the one after it serve, if "
    "the suite knows only these; an unstable highest version may be missing, in 4.0.0 JoinGroup below v2 (KAFKA-19444), too",
    tolerated="a part of the range, of a broker that only resembles a release",
    apis={"ApiVersions": 0},
)
def release_profile(broker: Broker) -> None:
    wanted = version_key(broker.subject.kafka_version)
    tables = sorted({release for api in APIS.values() for release in api.releases}, key=version_key)
    around = [release for release in tables if version_key(release) <= wanted][-1:]
    if not around:
        broker.skip(f"this suite has no table of Kafka {broker.subject.kafka_version} or before it")
    # Clients follow the highest version of both sides, so a broker that is no Apache Kafka may serve a part of the range.
    a_part_will_do = broker.subject.resembles_only
    around += [release for release in tables if version_key(release) > wanted and version_key(around[0]) < wanted][:1]
    for key, (lowest, highest) in sorted(broker.subject.api_versions.items()):
        if key not in APIS or not APIS[key].releases.keys() >= {*around}:
            continue
        ranges = [APIS[key].releases[release] for release in around]
        first, last = max(one[0] for one in ranges), min(one[1] - one[2] for one in ranges)
        if key == JOIN_GROUP and broker.is_kafka("4.0", until="4.0.0"):
            first = LOWEST_JOIN_GROUP_OF_4_0_0
        with broker.case(APIS[key].name):
            reported = f"v{lowest} to v{highest} advertised, Kafka {' and '.join(around)} has v{first} to v{last}"
            whole = lowest <= first and highest >= last
            if a_part_will_do and not whole and lowest <= last and highest >= first:
                broker.tolerate(reported)
            else:
                broker.expect(whole, reported)


@requirement(
    "API-12",
    notices="stuck: Java and franz-go send nothing to this node for as long as they are asked to (KIP-219)",
    source="KIP-219; KafkaApis.maybeRecordAndGetThrottleTimeMs",
    sentence="Where no quota is exceeded no answer asks the client to wait.",
    accepted="throttle_time_ms 0 from every API that any client uses, in its highest version",
    tolerated="up to a second, which a quota on what all clients of the suite ask may have brought about",
)
def no_throttling(broker: Broker) -> None:
    topic = broker.topic()
    for key, (_, version) in sorted(broker.subject.api_versions.items()):
        if key not in APIS or APIS[key].name not in CORE or version not in APIS[key].request.VERSIONS:
            continue
        asked_ms = getattr(
            broker.call(minimal_request(broker, APIS[key].name, version, topic), version), "throttle_time_ms", 0
        )
        broker.expect(
            asked_ms <= QUOTA_WINDOW_MS,
            f"{APIS[key].name} v{version} asks for a wait of {asked_ms} ms, at most a second",
        )
        if asked_ms:
            broker.tolerate(f"{APIS[key].name} v{version} asks for a wait of {asked_ms} ms")
