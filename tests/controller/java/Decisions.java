package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.BrokerRegistrationReply;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Kafka's own control managers, asked one decision a line: `name now offset argument`. Answers `code|answer|records`. What
 * they decide is replayed at once, so that both sides decide the next on the same state. */
public class Decisions {
    static final String DROPPED = "is not assigned to this partition.";

    /** Kafka asks for the directory of a replica that a reassignment has dropped, and fails. */
    static class Failed extends RuntimeException {
    }

    static class Clock implements Time {
        long nowMs = 0;

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    final Clock clock = new Clock();
    final LogContext log = new LogContext();
    final SnapshotRegistry registry = new SnapshotRegistry(log);
    final FeatureControlManager features;
    final ClusterControlManager cluster;
    final ConfigurationControlManager configs;
    final ReplicationControlManager replication;
    final ProducerIdControlManager producerIds;

    Decisions(Map<String, Object> settings) {
        Map<String, VersionRange> supported = new HashMap<>();
        supported.put("metadata.version", VersionRange.of((short) 7, (short) 30));
        supported.put("eligible.leader.replicas.version", VersionRange.of((short) 0, (short) 1));
        features = new FeatureControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(100, supported, List.of(100))).build();
        cluster = new ClusterControlManager.Builder().setLogContext(log).setTime(clock).setSnapshotRegistry(registry)
            .setClusterId("a-cluster").setSessionTimeoutNs(9_000_000_000L).setFeatureControlManager(features)
            .setBrokerShutdownHandler(this::shutDown).build();
        KafkaConfigSchema schema = new KafkaConfigSchema(
            Map.of(ConfigResource.Type.BROKER, new ConfigDef(AbstractKafkaConfig.CONFIG_DEF),
                ConfigResource.Type.TOPIC, LogConfig.configDefCopy()),
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS);
        configs = new ConfigurationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setKafkaConfigSchema(schema).setFeatureControl(features).setNodeId(100).setStaticConfig(settings).build();
        replication = new ReplicationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setClusterControl(cluster).setConfigurationControl(configs).setFeatureControl(features).build();
        producerIds = new ProducerIdControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setClusterControlManager(cluster).build();
        cluster.activate();
    }

    void shutDown(int broker, boolean clean, List<ApiMessageAndVersion> records) {
        replication.handleBrokerShutdown(broker, clean, records);
    }

    void replay(ApiMessage record, long offset) {
        if (record instanceof RegisterBrokerRecord each) cluster.replay(each, offset);
        else if (record instanceof UnregisterBrokerRecord each) cluster.replay(each);
        else if (record instanceof BrokerRegistrationChangeRecord each) cluster.replay(each);
        else if (record instanceof TopicRecord each) replication.replay(each);
        else if (record instanceof PartitionRecord each) replication.replay(each);
        else if (record instanceof PartitionChangeRecord each) replication.replay(each);
        else if (record instanceof RemoveTopicRecord each) replication.replay(each);
        else if (record instanceof ClearElrRecord each) replication.replay(each);
        else if (record instanceof ConfigRecord each) configs.replay(each);
        else if (record instanceof FeatureLevelRecord each) features.replay(each);
        else if (record instanceof ProducerIdsRecord each) producerIds.replay(each);
        else throw new IllegalArgumentException("a record of another kind: " + record);
    }

    static ByteBufferAccessor bytes(String hex) {
        return new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    static String hex(Message message, int version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, (short) version).buffer();
        byte[] found = new byte[buffer.remaining()];
        buffer.get(found);
        return HexFormat.of().formatHex(found);
    }

    /** The newest version of each record: which of them Kafka writes is not what is compared. */
    static String hex(ApiMessageAndVersion record) {
        ApiMessageAndVersion newest = new ApiMessageAndVersion(record.message(), record.message().highestSupportedVersion());
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(newest, cache));
        MetadataRecordSerde.INSTANCE.write(newest, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }

    /** Kafka fences again who is fenced already: a record that changes nothing. */
    List<ApiMessageAndVersion> withoutRepetition(List<ApiMessageAndVersion> records) {
        return records.stream().filter(each -> {
            if (!(each.message() instanceof BrokerRegistrationChangeRecord change) || change.fenced() != 1) return true;
            BrokerRegistration broker = cluster.registration(change.brokerId());
            return !broker.fenced();
        }).collect(Collectors.toList());
    }

    ControllerRequestContext context(int version) {
        return new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion((short) version), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    ControllerResult<String> decide(String name, long offset, String argument) {
        switch (name) {
            case "register": {
                BrokerRegistrationRequestData request = new BrokerRegistrationRequestData(bytes(argument), (short) 4);
                ControllerResult<BrokerRegistrationReply> result =
                    cluster.registerBroker(request, offset, features.finalizedFeatures(Long.MAX_VALUE), true);
                return ControllerResult.of(result.records(), "" + result.response().epoch());
            }
            case "hear": {
                String[] words = argument.split(",");
                cluster.trackBrokerHeartbeat(Integer.parseInt(words[0]), Long.parseLong(words[1]));
                return ControllerResult.of(List.of(), "");
            }
            case "heartbeat": {
                BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData(bytes(argument), (short) 2);
                cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
                ControllerResult<BrokerHeartbeatReply> result = replication.processBrokerHeartbeat(
                    request, cluster.registerBrokerRecordOffset(request.brokerId()).orElse(Long.MAX_VALUE));
                BrokerHeartbeatReply reply = result.response();
                if (reply.inControlledShutdown()) {
                    long last = offset + withoutRepetition(result.records()).size() - 1;
                    cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(request.brokerId(), last);
                }
                return ControllerResult.of(
                    result.records(), reply.isCaughtUp() + "," + reply.isFenced() + "," + reply.shouldShutDown());
            }
            case "overdue": {
                ControllerResult<Boolean> result;
                do {
                    result = replication.maybeFenceOneStaleBroker();
                } while (result.response() && result.records().isEmpty());
                return ControllerResult.of(result.records(), "");
            }
            case "takeover":
                cluster.deactivate();
                cluster.activate();
                return ControllerResult.of(List.of(), "");
            case "alter": {
                AlterPartitionRequestData request = new AlterPartitionRequestData(bytes(argument), (short) 3);
                var result = replication.alterPartition(context(3), request);
                return ControllerResult.of(result.records(), hex(result.response(), 3));
            }
            case "elect": {
                ElectLeadersRequestData request = new ElectLeadersRequestData(bytes(argument), (short) 2);
                var result = replication.electLeaders(request);
                return ControllerResult.of(result.records(), hex(result.response(), 2));
            }
            case "reassign": {
                var request = new AlterPartitionReassignmentsRequestData(bytes(argument), (short) 1);
                var result = replication.alterPartitionReassignments(request);
                for (var topic : result.response().responses()) {
                    for (var partition : topic.partitions()) {
                        if (partition.errorCode() == Errors.UNKNOWN_SERVER_ERROR.code()) throw new Failed();
                    }
                }
                return ControllerResult.of(result.records(), hex(result.response(), 1));
            }
            case "assign": {
                var request = new AssignReplicasToDirsRequestData(bytes(argument), (short) 0);
                var result = replication.handleAssignReplicasToDirs(request);
                return ControllerResult.of(result.records(), hex(result.response(), 0));
            }
            case "unregister":
                return ControllerResult.of(replication.unregisterBroker(Integer.parseInt(argument)).records(), "");
            case "balance": {
                ControllerResult<Boolean> result = replication.maybeBalancePartitionLeaders();
                return ControllerResult.of(result.records(), "" + result.response());
            }
            case "unclean": {
                ControllerResult<Boolean> result = replication.maybeElectUncleanLeaders();
                return ControllerResult.of(result.records(), "" + result.response());
            }
            case "ids": {
                String[] words = argument.split(",");
                ControllerResult<ProducerIdsBlock> result =
                    producerIds.generateNextProducerId(Integer.parseInt(words[0]), Long.parseLong(words[1]));
                return ControllerResult.of(result.records(), "" + result.response().firstProducerId());
            }
            case "replay": {
                ByteBufferAccessor found = bytes(argument);
                return ControllerResult.of(List.of(MetadataRecordSerde.INSTANCE.read(found, found.remaining())), "");
            }
            default:
                throw new IllegalArgumentException("no decision is called " + name);
        }
    }

    String answer(String line) {
        String[] words = line.split(" ", 4);
        clock.nowMs = Long.parseLong(words[1]);
        long offset = Long.parseLong(words[2]);
        ControllerResult<String> result;
        try {
            result = decide(words[0], offset, words[3]);
        } catch (org.apache.kafka.common.errors.ApiException refusal) {
            return Errors.forException(refusal).code() + "|" + refusal.getMessage() + "|";
        } catch (IllegalArgumentException mistake) {
            if (mistake.getMessage().endsWith(DROPPED)) throw new Failed();
            throw mistake;
        }
        List<ApiMessageAndVersion> records = withoutRepetition(result.records());
        List<String> written = new ArrayList<>();
        for (ApiMessageAndVersion record : records) {
            written.add(hex(record));
            replay(record.message(), offset++);
        }
        return "0|" + result.response() + "|" + String.join(",", inOrder(written));
    }

    /** Changes of partitions in a row have no order that matters. */
    static List<String> inOrder(List<String> records) {
        List<String> sorted = new ArrayList<>();
        int start = 0;
        for (int at = 0; at <= records.size(); at++) {
            if (at == records.size() || !records.get(at).startsWith("0105")) {
                List<String> run = new ArrayList<>(records.subList(start, at));
                Collections.sort(run);
                sorted.addAll(run);
                if (at < records.size()) sorted.add(records.get(at));
                start = at + 1;
            }
        }
        return sorted;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        Decisions decisions = null;
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            if (line.startsWith("begin")) {
                Map<String, Object> settings = new HashMap<>();
                for (String each : line.split(" ")[1].split(",")) {
                    settings.put(each.split("=")[0], each.split("=")[1]);
                }
                decisions = new Decisions(settings);
                answers.append("begun\n");
            } else if (decisions == null) {
                answers.append("over\n");
            } else {
                try {
                    answers.append(decisions.answer(line)).append('\n');
                } catch (Failed over) {
                    answers.append("over\n");
                    decisions = null;
                }
            }
        }
        System.out.print(answers);
    }
}
