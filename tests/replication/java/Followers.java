import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.AbstractFetcherThread;
import kafka.server.AlterPartitionManager;
import kafka.server.BlockingSend;
import kafka.server.BrokerIdAndFetcherId;
import kafka.server.KafkaConfig;
import kafka.server.QuotaFactory;
import kafka.server.RemoteLeaderEndPoint;
import kafka.server.ReplicaFetcherManager;
import kafka.server.ReplicaFetcherThread;
import kafka.server.ReplicaManager;
import kafka.server.ReplicationQuotaManager;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.FetchSessionHandler;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ListOffsetsResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.DelayedActionQueue;
import org.apache.kafka.server.PartitionFetchState;
import org.apache.kafka.server.ReplicaFetch;
import org.apache.kafka.server.common.DirectoryEventHandler;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.network.BrokerEndPoint;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.server.util.timer.SystemTimer;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A broker's replicas and fetchers: one step a line; answers what the step gave, and every replica after it. */
public class Followers {
    static final int NODE = 1;
    static final short FETCH_VERSION = 18;
    static final long BACKOFF_MS = 100_000_000;
    static final Clock CLOCK = new Clock();
    static final Metrics METRICS = new Metrics();
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    static final LogConfig CONFIG = new LogConfig(Map.of("cleanup.policy", "delete", "retention.ms", "-1", "segment.index.bytes", "4096"));
    static final AlterPartitionManager PROPOSALS = (partition, proposed) -> new CompletableFuture<>();
    static QuotaFactory.QuotaManagers quotas;
    static File folder;
    static KafkaConfig config;
    static KRaftMetadataCache cache;
    static LogManager logs;
    static ReplicaManager replicas;
    static MetadataImage image;
    static boolean isStarting;
    static JsonNode round;

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

    /** What is to be done once and at once is done; nothing else is. */
    static Scheduler scheduler() {
        return (Scheduler) Proxy.newProxyInstance(Followers.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (self, method, given) -> {
            if (method.getName().startsWith("schedule") && given.length > 2 && (long) given[2] == 0 && (given.length < 4 || (long) given[3] < 0)) {
                ((Runnable) given[1]).run();
            }
            return Proxy.newProxyInstance(Followers.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (task, asked, nothing) -> false);
        });
    }

    static ByteBuffer bytes(JsonNode hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex.asText()));
    }

    static class Purgatory<T extends org.apache.kafka.server.purgatory.DelayedOperation> extends DelayedOperationPurgatory<T> {
        Purgatory() {
            super("none", new SystemTimer("none"), NODE, 1000, false, true);
        }

        static <T extends org.apache.kafka.server.purgatory.DelayedOperation> Option<DelayedOperationPurgatory<T>> none() {
            return Option.apply(new Purgatory<T>());
        }
    }

    /** The leader's side: before it answers a fetch, the steps happen that the round has in between. */
    record Sender(BrokerEndPoint brokerEndPoint) implements BlockingSend {
        public ClientResponse sendRequest(AbstractRequest.Builder<? extends AbstractRequest> builder) {
            short version = builder.latestAllowedVersion();
            AbstractResponse response;
            if (builder instanceof FetchRequest.Builder) {
                JsonNode answered = round;
                for (JsonNode step : answered.get("meanwhile")) {
                    made(step);
                }
                round = answered;
                if (answered.get("fails").asBoolean()) {
                    throw new RuntimeException("no answer");
                }
                response = FetchResponse.parse(new ByteBufferAccessor(bytes(answered.get("answer"))), FETCH_VERSION);
            } else {
                response = bounds((ListOffsetsRequest) builder.build(version));
            }
            return new ClientResponse(new RequestHeader(builder.apiKey(), version, "", 0), null, "", 0, 0, false, null, null, response);
        }

        public void initiateClose() {
        }

        public void close() {
        }
    }

    static ListOffsetsResponse bounds(ListOffsetsRequest request) {
        var topic = request.data().topics().get(0);
        boolean isLatest = topic.partitions().get(0).timestamp() == ListOffsetsRequest.LATEST_TIMESTAMP;
        JsonNode found = round.get("bounds").get(topic.name()).get(isLatest ? "latest" : "earliest");
        return new ListOffsetsResponse(new ListOffsetsResponseData().setTopics(List.of(new ListOffsetsResponseData.ListOffsetsTopicResponse()
            .setName(topic.name()).setPartitions(List.of(new ListOffsetsResponseData.ListOffsetsPartitionResponse().setPartitionIndex(0)
                .setErrorCode((short) found.get(0).asInt()).setOffset(found.get(1).asLong()))))));
    }

    /** Fetchers without threads: `round` makes each of their steps. */
    static class Fetchers extends ReplicaFetcherManager {
        Fetchers(ReplicaManager manager, ReplicationQuotaManager quota) {
            super(config, manager, METRICS, CLOCK, quota, () -> MetadataVersion.latestProduction(), () -> 0L);
        }

        @Override
        public ReplicaFetcherThread createFetcherThread(int id, BrokerEndPoint broker) {
            LogContext context = new LogContext("");
            var leader = new RemoteLeaderEndPoint("", new Sender(broker), new FetchSessionHandler(context, broker.id()), config, replicaManager(),
                quotas.follower(), () -> MetadataVersion.latestProduction(), () -> 0L);
            return new ReplicaFetcherThread("fetcher", leader, config, failedPartitions(), replicaManager(), quotas.follower(), "") {
                @Override
                public void start() {
                }
            };
        }
    }

    static void start() throws Exception {
        cache = new KRaftMetadataCache(NODE, () -> KRaftVersion.KRAFT_VERSION_1);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        logs = new LogManager(CollectionConverters.asScala(List.of(folder)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            resource -> new Properties(), CONFIG, new CleanerConfig(false), 1, 1000, 1000, 1000, 1000, 900_000,
            new ProducerStateManagerConfig(1 << 30, false), 600_000, scheduler(), STATS, failures, CLOCK, false, 0,
            LogManager.$lessinit$greater$default$20());
        replicas = new ReplicaManager(config, METRICS, CLOCK, scheduler(), logs, Option.empty(), quotas, cache, failures, PROPOSALS, STATS,
            Purgatory.none(), Purgatory.none(), Purgatory.none(), Purgatory.none(), Purgatory.none(), Purgatory.none(), () -> 0L, Option.empty(),
            DirectoryEventHandler.NOOP, new DelayedActionQueue()) {
            @Override
            public ReplicaFetcherManager createReplicaFetcherManager(Metrics metrics, Time time, ReplicationQuotaManager quota) {
                return new Fetchers(this, quota);
            }
        };
        isStarting = true;
    }

    static void begin(JsonNode step) throws Exception {
        folder = new File(step.get("folder").asText());
        folder.mkdirs();
        config = new KafkaConfig(Map.of("process.roles", "broker", "node.id", "" + NODE, "controller.quorum.voters", "9@localhost:9",
            "controller.listener.names", "CONTROLLER", "listeners", "PLAINTEXT://localhost:0", "log.dirs", folder.toString(),
            "replica.fetch.backoff.ms", "" + BACKOFF_MS), false);
        if (quotas == null) {
            quotas = QuotaFactory.instantiate(config, METRICS, CLOCK, "", "");
        }
        image = MetadataImage.EMPTY;
        start();
    }

    /** As BrokerMetadataPublisher does. */
    static void publish(MetadataDelta delta) {
        MetadataImage next = delta.apply(new MetadataProvenance(image.offset() + 1, 1, 0, true));
        forgetEmptyEpochs(next);
        image = next;
        cache.setImage(image);
        if (isStarting) {
            isStarting = false;
            logs.startup(CollectionConverters.asScala(cache.getAllTopics()), log -> log.topicId().isEmpty()
                || org.apache.kafka.storage.internals.log.LogManager.isStrayReplica(
                    image.topics().partitionReplicas(log.topicId().get(), log.topicPartition().partition()), NODE, log));
            CollectionConverters.asJava(logs.allLogs()).forEach(log -> log.truncateTo(log.logEndOffset()));
        }
        if (delta.topicsDelta() != null) {
            replicas.applyDelta(delta.topicsDelta(), image);
        }
    }

    /** Of the leader epochs that end with this image. */
    static void forgetEmptyEpochs(MetadataImage next) {
        for (Partition each : partitions()) {
            TopicImage topic = next.topics().getTopic(each.topicId().get());
            PartitionRegistration state = topic == null ? null : topic.partitions().get(0);
            if (state == null || (state.leader != NODE && state.leaderEpoch != each.getLeaderEpoch())) {
                UnifiedLog log = each.localLogOrException();
                log.truncateTo(log.logEndOffset());
            }
        }
    }

    static void delta(JsonNode step) {
        publish(replayed(step));
    }

    static MetadataDelta replayed(JsonNode step) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        step.get("records").forEach(each -> {
            ByteBuffer bytes = bytes(each);
            delta.replay(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(bytes), bytes.remaining()).message());
        });
        return delta;
    }

    static void restart(JsonNode step) throws Exception {
        if (step.get("clean").asBoolean()) {
            replicas.checkpointHighWatermarks();
            logs.shutdown(1);
        } else {
            for (UnifiedLog each : CollectionConverters.asJava(logs.allLogs())) {
                // Or a log that was never appended to counts for one without a topic id, which is put aside.
                each.partitionMetadataFile().get().maybeFlush();
                each.closeHandlers();
            }
            for (FileLock each : CollectionConverters.asJava(logs.dirLocks())) {
                each.destroy();
            }
        }
        start();
        MetadataImage next = replayed(step).apply(new MetadataProvenance(image.offset() + 1, 1, 0, true));
        MetadataDelta all = new MetadataDelta.Builder().build();
        var options = new org.apache.kafka.image.writer.ImageWriterOptions.Builder(next.features().metadataVersionOrThrow()).build();
        var records = new org.apache.kafka.image.writer.RecordListWriter();
        next.write(records, options);
        records.records().forEach(each -> all.replay(each.message()));
        publish(all);
    }

    static void checkpoint(JsonNode step) {
        logs.checkpointLogRecoveryOffsets();
        logs.checkpointLogStartOffsets();
        if (step.get("high watermarks").asBoolean()) {
            replicas.checkpointHighWatermarks();
        }
    }

    static List<Partition> partitions() {
        List<Partition> found = new ArrayList<>();
        replicas.allPartitions().keySet().stream().sorted(Comparator.comparing(TopicPartition::topic)).forEach(each ->
            replicas.onlinePartition(each).foreach(found::add));
        return found;
    }

    // ---- fetching

    static ReplicaFetcherThread fetcher(int leader) {
        Option<ReplicaFetcherThread> found = replicas.replicaFetcherManager().fetcherThreadMap().get(new BrokerIdAndFetcherId(leader, 0));
        return found.isEmpty() ? null : found.get();
    }

    @SuppressWarnings("unchecked")
    static org.apache.kafka.common.internals.PartitionStates<PartitionFetchState> states(ReplicaFetcherThread fetcher) throws Exception {
        var field = AbstractFetcherThread.class.getDeclaredField("partitionStates");
        field.setAccessible(true);
        return (org.apache.kafka.common.internals.PartitionStates<PartitionFetchState>) field.get(fetcher);
    }

    /** As AbstractFetcherThread.doWork, but for the wait where nothing is to be fetched. */
    static String round(JsonNode step) throws Exception {
        ReplicaFetcherThread fetcher = fetcher(step.get("leader").asInt());
        if (fetcher == null) {
            return "no fetcher";
        }
        round = step;
        Method truncate = AbstractFetcherThread.class.getDeclaredMethod("maybeTruncate");
        truncate.setAccessible(true);
        truncate.invoke(fetcher);
        Optional<ReplicaFetch> request = fetcher.leader().buildFetch(states(fetcher).partitionStateMap()).result();
        if (request.isEmpty()) {
            return "nothing";
        }
        TreeMap<String, String> asked = new TreeMap<>();
        request.get().partitionData().forEach((partition, each) -> asked.put(partition.topic(), each.topicId + " " + each.fetchOffset + " "
            + each.currentLeaderEpoch.get() + " " + each.lastFetchedEpoch.orElse(-1) + " " + each.logStartOffset));
        fetcher.processFetchRequest(request.get().partitionData(), request.get().fetchRequest());
        for (Partition each : partitions()) {
            UnifiedLog log = each.localLogOrException();
            log.updateHighWatermark(log.highWatermark());  // a cut is seen in the last stable offset with the next fetch only
        }
        return asked.toString();
    }

    static void elapse() throws Exception {
        for (ReplicaFetcherThread fetcher : CollectionConverters.asJava(replicas.replicaFetcherManager().fetcherThreadMap().values())) {
            var states = states(fetcher);
            new ArrayList<>(states.partitionStateMap().entrySet()).forEach(each -> {
                PartitionFetchState old = each.getValue();
                states.update(each.getKey(), new PartitionFetchState(old.topicId(), old.fetchOffset(), old.lag(), old.currentLeaderEpoch(),
                    Optional.empty(), old.state(), old.lastFetchedEpoch()));
            });
        }
    }

    static String append(JsonNode step) {
        MemoryRecords records = MemoryRecords.readableRecords(bytes(step.get("data")));
        Partition partition = replicas.getPartitionOrException(new TopicPartition(step.get("topic").asText(), 0));
        var info = partition.appendRecordsToLeader(records, AppendOrigin.valueOf(step.get("origin").asText()), 1, RequestLocal.noCaching(),
            VerificationGuard.SENTINEL, (short) 0);
        return info.firstOffset() + "-" + info.lastOffset();
    }

    static String done(JsonNode step) throws Exception {
        CLOCK.now = step.get("now").asLong();
        switch (step.get("op").asText()) {
            case "begin": begin(step); return "";
            case "delta": delta(step); return "";
            case "restart": restart(step); return "";
            case "round": return round(step);
            case "elapse": elapse(); return "";
            case "append": return append(step);
            case "delete":
                return "" + replicas.getPartitionOrException(new TopicPartition(step.get("topic").asText(), 0))
                    .deleteRecordsOnLeader(step.get("offset").asLong()).lowWatermark();
            case "roll": logs.getLog(new TopicPartition(step.get("topic").asText(), 0), false).get().roll(); return "";
            case "retention":
                for (Partition each : partitions()) {
                    each.localLogOrException().deleteOldSegments();
                }
                return "";
            case "checkpoint": checkpoint(step); return "";
            default: throw new IllegalArgumentException(step.toString());
        }
    }

    static String made(JsonNode step) {
        try {
            return done(step);
        } catch (Throwable error) {
            if (System.getenv("EXPLAIN") != null) {
                error.printStackTrace();
            }
            return Errors.forException(error).name();
        }
    }

    // ---- the state

    static Map<String, Object> state(Partition partition) {
        Map<String, Object> found = new TreeMap<>();
        UnifiedLog log = partition.localLogOrException();
        found.put("id", partition.topicId().get().toString() + " " + log.topicId().get());
        found.put("role", (partition.isLeader() ? "leads" : "follows") + " " + partition.getLeaderEpoch() + " " + partition.getPartitionEpoch());
        found.put("end", log.logEndOffset());
        found.put("start", log.logStartOffset());
        found.put("high watermark", log.highWatermark());
        found.put("last stable", log.lastStableOffset());
        List<String> producers = new ArrayList<>();
        log.activeProducers().stream().sorted(Comparator.comparingLong(each -> each.producerId())).forEach(each ->
            producers.add(each.producerId() + " " + each.producerEpoch() + " " + each.lastSequence() + " " + each.currentTxnStartOffset() + " "
                + log.lastRecordsOfActiveProducers().get(each.producerId()).lastDataOffset().orElse(-1)));
        found.put("producers", producers);
        List<String> batches = new ArrayList<>();
        log.logSegments().forEach(segment -> segment.log().batches().forEach(each ->
            batches.add(each.baseOffset() + "-" + each.lastOffset() + " " + each.partitionLeaderEpoch() + " " + each.checksum())));
        found.put("batches", batches);
        List<String> epochs = new ArrayList<>();
        log.leaderEpochCache().epochEntries().forEach(each -> epochs.add(each.epoch() + " " + each.startOffset()));
        found.put("epochs", epochs);
        TopicPartition name = partition.topicPartition();
        List<String> fetchers = new ArrayList<>();
        for (int leader = 2; leader < 5; leader++) {
            ReplicaFetcherThread fetcher = fetcher(leader);
            if (fetcher != null && fetcher.fetchState(name).isDefined()) {
                fetchers.add(leader + (fetcher.fetchState(name).get().isDelayed() ? " delayed" : " ready"));
            }
        }
        if (replicas.replicaFetcherManager().failedPartitions().contains(name)) {
            fetchers.add("failed");
        }
        found.put("fetchers", fetchers);
        return found;
    }

    /** Kafka applies a partition's log start offset to stray logs of its name, too, and may delete their segments. */
    static boolean holds(File log) {
        return Arrays.stream(log.listFiles()).anyMatch(each -> each.getName().contains(".log") && each.length() > 0);
    }

    static Map<String, Object> state() {
        Map<String, Object> found = new TreeMap<>();
        for (Partition each : partitions()) {
            found.put(each.topicPartition().topic(), each.log().isEmpty() ? "no log" : state(each));
        }
        List<String> folders = new ArrayList<>();
        for (String each : folder.list()) {
            if (each.startsWith("t") && !each.endsWith("-delete") && (!each.endsWith("-stray") || holds(new File(folder, each)))) {
                folders.add(each.replaceAll("\\..*-", "-"));
            }
        }
        folders.sort(null);
        found.put("folders", folders);
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        try {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                String answer = made(mapper.readTree(line));
                Map<String, Object> found = state();
                found.put("answer", answer);
                answers.append(mapper.writeValueAsString(found)).append('\n');
            }
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);  // other threads would go on
        }
        System.out.print(answers);
        System.exit(0);
    }
}
