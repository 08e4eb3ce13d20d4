import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import kafka.cluster.DelayedOperations;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.AlterPartitionManager;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords.TimestampAndOffset;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.ClusterImage;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TopicIdPartition;
import org.apache.kafka.server.partition.AlterPartitionListener;
import org.apache.kafka.server.replica.ReplicaState;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchParams;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpoints;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogReadInfo;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** One step of a partition a line; answers what the step gave, and the partition after it. Arguments: a folder. */
public class Partitions {
    /** Stands still until a step moves it. */
    static class Clock implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    /** Proposals are kept until a step answers them. */
    static class Proposals implements AlterPartitionManager {
        final ArrayDeque<CompletableFuture<LeaderAndIsr>> open = new ArrayDeque<>();
        final List<String> sent = new ArrayList<>();

        public void start() {
        }

        public void shutdown() {
        }

        public CompletableFuture<LeaderAndIsr> submit(TopicIdPartition partition, LeaderAndIsr proposed) {
            TreeMap<Integer, Long> members = new TreeMap<>();
            proposed.isrWithBrokerEpoch().forEach(each -> members.put(each.brokerId(), each.brokerEpoch()));
            sent.add(proposed.leaderEpoch() + " " + proposed.partitionEpoch() + " " + members);
            open.add(new CompletableFuture<>());
            return open.peekLast();
        }
    }

    static final Clock CLOCK = new Clock();
    static final int NODE = 1;
    static final Properties DEFAULTS = new Properties();
    static final OffsetCheckpoints NO_CHECKPOINTS = (folder, partition) -> Optional.empty();
    static LogManager logs;
    static KRaftMetadataCache cache;
    static Proposals proposals;
    static Partition partition;
    static long brokerEpoch;

    /** What is to be done once and at once is done; nothing else is. */
    static Scheduler scheduler() {
        return (Scheduler) Proxy.newProxyInstance(Partitions.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (self, method, given) -> {
            if (method.getName().startsWith("schedule") && given.length > 2 && (long) given[2] == 0 && (given.length < 4 || (long) given[3] < 0)) {
                ((Runnable) given[1]).run();
            }
            return null;
        });
    }

    static LogManager logManager(File folder) {
        ConfigRepository configs = resource -> new Properties();
        return new LogManager(CollectionConverters.asScala(List.of(folder)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            configs, new LogConfig(DEFAULTS), new CleanerConfig(false), 1, 1000, 1000, 1000, 1000, 900_000,
            new ProducerStateManagerConfig(1 << 30, false), 600_000, scheduler(), new BrokerTopicStats(), new LogDirFailureChannel(1),
            CLOCK, false, 0, LogManager.$lessinit$greater$default$20());
    }

    static void begin(JsonNode step) {
        TopicPartition name = new TopicPartition(step.get("topic").asText(), 0);
        proposals = new Proposals();
        cache = new KRaftMetadataCache(NODE, () -> KRaftVersion.KRAFT_VERSION_1);
        AlterPartitionListener listener = new AlterPartitionListener() {
            public void markIsrExpand() {
            }

            public void markIsrShrink() {
            }

            public void markFailed() {
            }
        };
        Option<Uuid> id = Option.apply(new Uuid(1, step.get("id").asLong()));
        DelayedOperations nothing = new DelayedOperations(id, name, null, null, null, null) {
            public void checkAndCompleteAll() {
            }

            public int numDelayedDelete() {
                return 1;
            }
        };
        partition = new Partition(name, step.get("lag").asLong(), NODE, () -> brokerEpoch, CLOCK, listener, nothing, cache, logs, proposals, id);
        partition.createLogIfNotExists(true, false, NO_CHECKPOINTS, id, Option.empty());
        configure(step);
    }

    static void configure(JsonNode step) {
        Properties settings = new Properties();
        step.get("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        partition.log().get().updateConfig(new LogConfig(settings));
    }

    static void brokers(JsonNode step) {
        Map<Integer, BrokerRegistration> found = new HashMap<>();
        for (JsonNode each : step.get("brokers")) {
            int id = each.get("id").asInt();
            found.put(id, new BrokerRegistration.Builder().setId(id).setEpoch(each.get("epoch").asLong()).setIncarnationId(new Uuid(2, id))
                .setListeners(Map.of()).setSupportedFeatures(Map.of()).setFenced(each.get("fenced").asBoolean())
                .setInControlledShutdown(each.get("leaves").asBoolean()).setDirectories(List.of()).build());
        }
        brokerEpoch = found.get(NODE).epoch();
        MetadataImage none = MetadataImage.EMPTY;
        cache.setImage(new MetadataImage(none.provenance(), none.features(), new ClusterImage(found, Map.of()), none.topics(), none.configs(),
            none.clientQuotas(), none.producerIds(), none.acls(), none.scram(), none.delegationTokens()));
    }

    static int[] ids(JsonNode list) {
        int[] found = new int[list.size()];
        for (int at = 0; at < found.length; at++) {
            found[at] = list.get(at).asInt();
        }
        return found;
    }

    static void state(JsonNode step) {
        int[] replicas = ids(step.get("replicas"));
        PartitionRegistration state = new PartitionRegistration.Builder().setReplicas(replicas).setIsr(ids(step.get("isr")))
            .setDirectories(DirectoryId.unassignedArray(replicas.length)).setAddingReplicas(ids(step.get("adding")))
            .setRemovingReplicas(ids(step.get("removing"))).setLeader(step.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.RECOVERED).setLeaderEpoch(step.get("epoch").asInt())
            .setPartitionEpoch(step.get("partition epoch").asInt()).build();
        if (state.leader == NODE) {
            partition.makeLeader(state, false, NO_CHECKPOINTS, partition.topicId(), Option.empty());
        } else {
            partition.makeFollower(state, false, NO_CHECKPOINTS, partition.topicId(), Option.empty());
        }
    }

    static MemoryRecords records(JsonNode step) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(step.get("data").asText())));
    }

    static String append(JsonNode step) {
        LogAppendInfo info = partition.appendRecordsToLeader(records(step), AppendOrigin.valueOf(step.get("origin").asText()),
            step.get("acks").asInt(), RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
        return info.firstOffset() + "-" + info.lastOffset();
    }

    /** As ReplicaFetcherThread.processPartitionData. */
    static void take(JsonNode step) throws Exception {
        UnifiedLog log = partition.localLogOrException();
        if (step.get("offset").asLong() != log.logEndOffset()) {
            throw new IllegalStateException("offset mismatch");
        }
        partition.appendRecordsToFollowerOrFutureReplica(records(step), false, step.get("epoch").asInt());
        log.maybeUpdateHighWatermark(step.get("high watermark").asLong());
        log.maybeIncrementLogStartOffset(step.get("start").asLong(), LogStartOffsetIncrementReason.LeaderOffsetIncremented);
    }

    static Optional<Integer> epoch(JsonNode number) {
        return number.asInt() < 0 ? Optional.empty() : Optional.of(number.asInt());
    }

    static String fetch(JsonNode step) {
        int replica = step.get("replica").asInt();
        FetchIsolation isolation = replica >= 0 ? FetchIsolation.LOG_END
            : step.get("committed").asBoolean() ? FetchIsolation.TXN_COMMITTED : FetchIsolation.HIGH_WATERMARK;
        Optional<org.apache.kafka.common.replica.ClientMetadata> client = step.get("any").asBoolean()
            ? Optional.of(new org.apache.kafka.common.replica.ClientMetadata.DefaultClientMetadata("", "", null, null, "")) : Optional.empty();
        FetchParams asked = new FetchParams(replica, step.get("broker epoch").asLong(), 0, 0, 1 << 20, isolation, client);
        FetchRequest.PartitionData data = new FetchRequest.PartitionData(Uuid.ZERO_UUID, step.get("offset").asLong(),
            step.get("start").asLong(), 1 << 20, epoch(step.get("epoch")), epoch(step.get("last epoch")));
        LogReadInfo read = partition.fetchRecords(asked, data, CLOCK.now, 1 << 20, true, step.get("counts").asBoolean());
        String diverging = read.divergingEpoch().map(each -> each.epoch() + " " + each.endOffset()).orElse("-");
        List<String> batches = new ArrayList<>();
        long last = -1;
        for (RecordBatch batch : read.fetchedData().records.batches()) {
            batches.add(batch.baseOffset() + "-" + batch.lastOffset());
            last = batch.lastOffset();
        }
        List<String> aborted = new ArrayList<>();
        for (FetchResponseData.AbortedTransaction each : read.fetchedData().abortedTransactions.orElse(List.of())) {
            if (each.firstOffset() <= last) {
                aborted.add(each.producerId() + "@" + each.firstOffset());
            }
        }
        return read.highWatermark() + " " + read.lastStableOffset() + " " + read.logStartOffset() + " diverging " + diverging + " "
            + batches + " aborted " + aborted;
    }

    /** As ReplicaManager.fetchOffset answers. */
    static String find(JsonNode step) {
        String level = step.get("isolation").asText();
        Option<IsolationLevel> isolation = level.isEmpty() ? Option.empty() : Option.apply(IsolationLevel.valueOf(level));
        OffsetResultHolder found = partition.fetchOffsetForTimestamp(step.get("timestamp").asLong(), isolation, epoch(step.get("epoch")), true,
            Option.empty());
        Optional<TimestampAndOffset> place = found.timestampAndOffsetOpt();
        boolean isHidden = found.lastFetchableOffset().isPresent()
            && (place.isEmpty() || place.get().offset >= found.lastFetchableOffset().get());
        if (isHidden && found.maybeOffsetsError().isPresent()) {
            throw found.maybeOffsetsError().get();
        }
        if (isHidden || place.isEmpty()) {
            return "-1 -1 -1";
        }
        return place.get().offset + " " + place.get().timestamp + " " + place.get().leaderEpoch.orElse(-1);
    }

    static void answer(JsonNode step) {
        CompletableFuture<LeaderAndIsr> proposal = proposals.open.remove();
        Errors error = Errors.valueOf(step.get("error").asText());
        if (error != Errors.NONE) {
            proposal.completeExceptionally(error.exception());
            return;
        }
        List<Integer> isr = new ArrayList<>();
        step.get("isr").forEach(each -> isr.add(each.asInt()));
        proposal.complete(new LeaderAndIsr(NODE, step.get("epoch").asInt(), isr, LeaderRecoveryState.RECOVERED,
            step.get("partition epoch").asInt()));
    }

    static String done(JsonNode step) throws Exception {
        CLOCK.now = step.get("now").asLong();
        switch (step.get("op").asText()) {
            case "begin": begin(step); return "";
            case "configure": configure(step); return "";
            case "brokers": brokers(step); return "";
            case "state": state(step); return "";
            case "append": return append(step);
            case "take": take(step); return "";
            case "fetch": return fetch(step);
            case "find": return find(step);
            case "shrink": partition.maybeShrinkIsr(); return "";
            case "answer": answer(step); return "";
            case "delete": return "" + partition.deleteRecordsOnLeader(step.get("offset").asLong()).lowWatermark();
            case "truncate": partition.truncateTo(step.get("offset").asLong(), false); return "";
            case "start over": partition.truncateFullyAndStartAt(step.get("offset").asLong(), false, Optional.empty()); return "";
            case "end of epoch":
                EpochEndOffset end = partition.lastOffsetForLeaderEpoch(epoch(step.get("epoch")), step.get("of").asInt(), true);
                if (end.errorCode() != 0) {
                    throw Errors.forCode(end.errorCode()).exception();
                }
                return end.leaderEpoch() + " " + end.endOffset();
            case "acknowledge":
                Tuple2<Object, Errors> reached = partition.checkEnoughReplicasReachOffset(step.get("offset").asLong());
                return (boolean) reached._1() || reached._2() != Errors.NONE ? reached._2().name() : "waits";
            default: throw new IllegalArgumentException(step.toString());
        }
    }

    static Map<String, Object> state() {
        Map<String, Object> found = new HashMap<>();
        UnifiedLog log = partition.log().get();
        found.put("end", log.logEndOffset());
        found.put("start", log.logStartOffset());
        found.put("high watermark", log.highWatermark());
        found.put("last stable", log.lastStableOffset());
        found.put("leader epoch", partition.getLeaderEpoch());
        found.put("partition epoch", partition.getPartitionEpoch());
        found.put("proposals", new ArrayList<>(proposals.sent));
        proposals.sent.clear();
        List<String> batches = new ArrayList<>();
        log.logSegments().forEach(segment -> segment.log().batches().forEach(each ->
            batches.add(each.baseOffset() + "-" + each.lastOffset() + " " + each.partitionLeaderEpoch())));
        found.put("batches", batches);
        if (!partition.isLeader()) {
            return found;
        }
        found.put("low watermark", partition.lowWatermarkIfLeader());
        found.put("isr", new TreeSet<>(partition.partitionState().isr()));
        found.put("maximal isr", new TreeSet<>(partition.partitionState().maximalIsr()));
        found.put("in flight", partition.partitionState().isInflight());
        found.put("lagging", new TreeSet<>(CollectionConverters.asJava(partition.getOutOfSyncReplicas(partition.replicaLagTimeMaxMs()))));
        found.put("under min isr", partition.isUnderMinIsr());
        TreeMap<Integer, String> followers = new TreeMap<>();
        CollectionConverters.asJava(partition.remoteReplicas()).forEach(each -> {
            ReplicaState state = each.stateSnapshot();
            followers.put(each.brokerId(), state.logEndOffset() + " " + state.logStartOffset() + " " + state.lastCaughtUpTimeMs() + " "
                + state.brokerEpoch().orElse(-2L));
        });
        found.put("followers", followers);
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        logs = logManager(new File(arguments[0]));
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode step = mapper.readTree(line);
            String answer;
            try {
                answer = done(step);
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer = Errors.forException(cause).name();
                if (System.getenv("EXPLAIN") != null) {
                    cause.printStackTrace();
                }
            }
            Map<String, Object> found = new HashMap<>(state());
            found.put("answer", answer);
            answers.append(mapper.writeValueAsString(found)).append('\n');
        }
        System.out.print(answers);
        System.exit(0);
    }
}
