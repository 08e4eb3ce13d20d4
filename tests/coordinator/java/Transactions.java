import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import kafka.coordinator.transaction.TransactionConfig;
import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.coordinator.transaction.TransactionMarkerChannelManager;
import kafka.coordinator.transaction.TransactionStateManager;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CoordinatorLoadInProgressException;
import org.apache.kafka.common.message.DescribeTransactionsResponseData;
import org.apache.kafka.common.message.ListTransactionsResponseData;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord.BrokerEndpoint;
import org.apache.kafka.common.metadata.RegisterBrokerRecord.BrokerEndpointCollection;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.ProduceResponse.PartitionResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.requests.WriteTxnMarkersRequest;
import org.apache.kafka.common.requests.WriteTxnMarkersRequest.TxnMarkerEntry;
import org.apache.kafka.common.requests.WriteTxnMarkersResponse;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.RequestAndCompletionHandler;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.RecordValidationStats;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Set$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** One step of Kafka's transaction coordinator a line; answers what was answered, what was written, and the state after it. */
public class Transactions {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final int MAX_MESSAGE_BYTES = 200;

    /** What Kafka's fakes share, for they are made without their constructors. */
    static Transactions current;

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

    /** What is to be done once is done at once; what is to be done again and again, when a step says so. */
    static class Tasks implements Scheduler {
        final List<Runnable> repeated = new ArrayList<>();

        public void startup() {
        }

        public void shutdown() {
        }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                task.run();
            } else {
                repeated.add(task);
            }
            return null;
        }

        public void resizeThreadPool(int newSize) {
        }
    }

    static class Log extends UnifiedLog {
        Log() throws Exception {
            super(0, null, null, 0, null, null, null, false, null);
        }

        public long logStartOffset() {
            return 0;
        }

        public LogConfig config() {
            return new LogConfig(Map.of("max.message.bytes", MAX_MESSAGE_BYTES));
        }

        public FetchDataInfo read(long offset, int maxLength, FetchIsolation isolation, boolean minOneMessage) {
            SimpleRecord[] left = current.log.subList((int) offset, current.log.size()).toArray(new SimpleRecord[0]);
            return new FetchDataInfo(new LogOffsetMetadata(offset), MemoryRecords.withRecords(offset, Compression.NONE, left));
        }
    }

    static class Replicas extends ReplicaManager {
        Replicas() {
            super(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                null, null, null);
        }

        public Option<UnifiedLog> getLog(TopicPartition partition) {
            return Option.apply(current.unifiedLog);
        }

        public Option<Object> getLogEndOffset(TopicPartition partition) {
            return Option.apply((long) current.log.size());
        }

        public Option<LogConfig> getLogConfig(TopicPartition partition) {
            return Option.apply(current.unifiedLog.config());
        }

        public TopicIdPartition topicIdPartition(TopicPartition partition) {
            return new TopicIdPartition(Uuid.METADATA_TOPIC_ID, partition);
        }

        public void appendRecords(long timeout, short acks, boolean internal, AppendOrigin origin,
                scala.collection.Map<TopicIdPartition, MemoryRecords> entries,
                Function1<Map<TopicIdPartition, PartitionResponse>, BoxedUnit> callback,
                Function1<scala.collection.Map<TopicIdPartition, RecordValidationStats>, BoxedUnit> validated, RequestLocal local,
                scala.collection.Map<TopicPartition, VerificationGuard> guards, short transactionVersion) {
            CollectionConverters.asJava(entries).forEach((partition, records) -> current.append(partition, records, callback));
        }
    }

    class Markers extends TransactionMarkerChannelManager {
        Markers(KafkaConfig config, TransactionStateManager states) {
            super(config, cache, (NetworkClient) null, states, clock);
        }

        public void wakeup() {
        }

        public void start() {
        }
    }

    final Clock clock = new Clock();
    final Tasks tasks = new Tasks();
    final KRaftMetadataCache cache = new KRaftMetadataCache(0, () -> KRaftVersion.KRAFT_VERSION_1);
    final List<SimpleRecord> log = new ArrayList<>();
    final UnifiedLog unifiedLog = made(Log.class);
    final List<Runnable> held = new ArrayList<>();
    final List<RequestAndCompletionHandler> asked = new ArrayList<>();
    final Markers markers;
    final TransactionCoordinator coordinator;
    List<Object> answers = new ArrayList<>();
    List<List<String>> written = new ArrayList<>();
    Set<String> sent = new TreeSet<>();
    JsonNode step;
    long nextProducerId = 1000;
    int epoch = 0;

    Transactions(JsonNode begin) throws Exception {
        current = this;
        step = begin;
        clock.now = begin.get("now").asLong();
        Properties properties = new Properties();
        Map.of("process.roles", "broker", "node.id", "0", "controller.quorum.voters", "9@localhost:9",
            "controller.listener.names", "CONTROLLER", "listeners", "PLAINTEXT://localhost:9092").forEach(properties::put);
        TransactionConfig config = new TransactionConfig(begin.get("expiration").asInt(), begin.get("longest").asInt(), 1,
            (short) 1, 1 << 20, 1 << 20, 1, 1, 1, begin.get("two_phase").asBoolean(), 30_000);
        image();
        TransactionStateManager states =
            new TransactionStateManager(0, tasks, made(Replicas.class), cache, config, clock, new Metrics());
        markers = new Markers(KafkaConfig.fromProps(properties), states);
        coordinator = new TransactionCoordinator(config, tasks, () -> this::producerId, states, markers, clock, new LogContext());
        coordinator.startup(() -> 1, true);
        coordinator.onElection(0, ++epoch);
    }

    @SuppressWarnings("unchecked")
    static <T> T made(Class<T> type) throws Exception {
        Field unsafe = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        return (T) ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(type);
    }

    long producerId() {
        if (!step.get("has_ids").asBoolean()) {
            throw new CoordinatorLoadInProgressException("no ids");
        }
        return nextProducerId++;
    }

    void append(TopicIdPartition partition, MemoryRecords records,
            Function1<Map<TopicIdPartition, PartitionResponse>, BoxedUnit> callback) {
        String refusal = step.get("refusal").asText();
        if (refusal.isEmpty()) {
            for (Record record : records.records()) {
                byte[] key = bytes(record.key());
                byte[] value = record.hasValue() ? bytes(record.value()) : null;
                log.add(new SimpleRecord(clock.now, key, value));
                written.add(List.of(HexFormat.of().formatHex(key), value == null ? "" : HexFormat.of().formatHex(value)));
            }
        }
        Errors error = refusal.isEmpty() ? Errors.NONE : Errors.valueOf(refusal);
        if (step.get("is_held").asBoolean()) {
            held.add(() -> callback.apply(Map.of(partition, new PartitionResponse(Errors.NOT_LEADER_OR_FOLLOWER))));
        } else {
            callback.apply(Map.of(partition, new PartitionResponse(error)));
        }
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    /** The metadata of the step: brokers 1 to 3, the leaders of partitions, and the cluster's transaction.version. */
    void image() {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (int broker = 1; broker <= 3; broker++) {
            BrokerEndpointCollection endpoints = new BrokerEndpointCollection();
            endpoints.add(new BrokerEndpoint().setName("PLAINTEXT").setHost("localhost").setPort(9092 + broker));
            delta.replay(new RegisterBrokerRecord().setBrokerId(broker).setFenced(false).setEndPoints(endpoints));
        }
        delta.replay(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME)
            .setFeatureLevel(MetadataVersion.latestProduction().featureLevel()));
        delta.replay(new FeatureLevelRecord().setName(TransactionVersion.FEATURE_NAME)
            .setFeatureLevel((short) step.get("version").asInt()));
        Map<String, Uuid> ids = new HashMap<>();
        for (JsonNode each : step.get("leaders")) {
            String topic = each.get(0).asText();
            if (!ids.containsKey(topic)) {
                ids.put(topic, new Uuid(1, ids.size() + 1));
                delta.replay(new TopicRecord().setName(topic).setTopicId(ids.get(topic)));
            }
            delta.replay(new PartitionRecord().setTopicId(ids.get(topic)).setPartitionId(each.get(1).asInt())
                .setReplicas(List.of(1, 2, 3)).setIsr(List.of(1, 2, 3)).setLeader(each.get(2).asInt()));
        }
        cache.setImage(delta.apply(new MetadataProvenance(1, 0, clock.now, true)));
    }

    void make(JsonNode next) throws Exception {
        step = next;
        clock.now = step.get("now").asLong();
        if (!step.get("op").asText().equals("load")) {
            asked.addAll(markers.generateRequests());
        }
        image();
        try {
            make();
        } catch (Exception exception) { // KafkaApis answers so
            answers.add(Map.of("error", Errors.forException(exception).code(), "producer", -1, "epoch", -1));
            System.err.println(exception);
        }
    }

    void make() throws Exception {
        String id = step.path("id").asText();
        long producer = step.path("producer").asLong();
        short producerEpoch = (short) step.path("epoch").asInt();
        TransactionVersion spoken = TransactionVersion.fromFeatureLevel((short) step.path("spoken").asInt());
        switch (step.get("op").asText()) {
            case "init":
                ProducerIdAndEpoch expected = producer < 0 ? null : new ProducerIdAndEpoch(producer, producerEpoch);
                coordinator.handleInitProducerId(id, step.get("timeout").asInt(), step.get("two_phase").asBoolean(),
                    step.get("keep").asBoolean(), Option.apply(expected),
                    result -> answered(result.error(), result.producerId(), result.producerEpoch()), RequestLocal.noCaching());
                break;
            case "add":
                coordinator.handleAddPartitionsToTransaction(id, producer, producerEpoch, partitions(),
                    error -> answered(error, -1, (short) -1), spoken, RequestLocal.noCaching());
                break;
            case "verify":
                coordinator.handleVerifyPartitionsInTransaction(id, producer, producerEpoch, partitions(), result -> {
                    Map<String, Object> errors = new TreeMap<>();
                    result.topicResults().forEach(topic -> topic.resultsByPartition().forEach(
                        each -> errors.put(topic.name() + "-" + each.partitionIndex(), each.partitionErrorCode())));
                    answers.add(errors);
                    return BoxedUnit.UNIT;
                });
                break;
            case "end":
                coordinator.handleEndTransaction(id, producer, producerEpoch,
                    TransactionResult.forId(step.get("commits").asBoolean()), spoken,
                    (error, then, thenEpoch) -> answered(error, (Long) then, (Short) thenEpoch), RequestLocal.noCaching());
                break;
            case "answer":
                answer();
                break;
            case "time":
                tasks.repeated.forEach(Runnable::run);
                break;
            case "load":
                held.forEach(Runnable::run);
                held.clear();
                coordinator.onResignation(0, Option.apply(++epoch));
                log.clear();
                for (JsonNode each : step.get("log")) {
                    String value = each.get(1).asText();
                    log.add(new SimpleRecord(clock.now, HexFormat.of().parseHex(each.get(0).asText()),
                        value.isEmpty() ? null : HexFormat.of().parseHex(value)));
                }
                coordinator.onElection(0, ++epoch);
                break;
            default:
        }
    }

    BoxedUnit answered(Errors error, long producer, short producerEpoch) {
        answers.add(Map.of("error", error.code(), "producer", producer, "epoch", producerEpoch));
        return BoxedUnit.UNIT;
    }

    Set<TopicPartition> partitions() {
        Set<TopicPartition> found = new HashSet<>();
        step.get("partitions").forEach(each -> found.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        return found;
    }

    /** A broker answers all that it was asked; a partition without an error has its marker. */
    void answer() {
        int broker = step.get("broker").asInt();
        List<RequestAndCompletionHandler> answered = asked.stream().filter(each -> each.destination.id() == broker).toList();
        asked.removeAll(answered);
        for (RequestAndCompletionHandler each : answered) {
            show(each);
            Map<Long, Map<TopicPartition, Errors>> errors = new HashMap<>();
            for (TxnMarkerEntry marker : entries(each)) {
                Map<TopicPartition, Errors> ofOne = errors.computeIfAbsent(marker.producerId(), producer -> new HashMap<>());
                marker.partitions().forEach(partition -> ofOne.put(partition,
                    Errors.forCode((short) step.get("errors").path(partition.toString()).asInt())));
            }
            RequestHeader header = new RequestHeader(ApiKeys.WRITE_TXN_MARKERS, (short) 2, "", 0);
            boolean isLost = step.get("is_lost").asBoolean();
            each.handler.onComplete(new ClientResponse(header, null, "", 0, 0, isLost, null, null,
                isLost ? null : new WriteTxnMarkersResponse(errors)));
        }
    }

    static List<TxnMarkerEntry> entries(RequestAndCompletionHandler request) {
        return ((WriteTxnMarkersRequest) request.request.build()).markers();
    }

    void show(RequestAndCompletionHandler request) {
        for (TxnMarkerEntry marker : entries(request).stream().filter(each -> each.coordinatorEpoch() == epoch).toList()) {
            marker.partitions().forEach(partition -> sent.add(String.join(" ", request.destination.idString(),
                partition.toString(), "" + marker.producerId(), "" + marker.producerEpoch(),
                "" + (marker.transactionResult() == TransactionResult.COMMIT), "" + marker.transactionVersion())));
        }
    }

    List<Object> described() {
        List<Object> found = new ArrayList<>();
        for (JsonNode id : step.get("ids")) {
            DescribeTransactionsResponseData.TransactionState each = coordinator.handleDescribeTransactions(id.asText());
            List<String> partitions = new ArrayList<>();
            each.topics().forEach(topic -> topic.partitions().forEach(index -> partitions.add(topic.topic() + "-" + index)));
            partitions.sort(null);
            found.add(List.of(each.errorCode(), each.transactionState(), each.producerId(), each.producerEpoch(),
                each.transactionTimeoutMs(), each.transactionStartTimeMs(), partitions));
        }
        return found;
    }

    List<Object> listed() {
        JsonNode filters = step.get("filters");
        Set<Object> producers = new HashSet<>();
        Set<String> states = new HashSet<>();
        filters.get(0).forEach(each -> producers.add(each.asLong()));
        filters.get(1).forEach(each -> states.add(each.asText()));
        ListTransactionsResponseData response;
        try {
            response = coordinator.handleListTransactions(Set$.MODULE$.from(CollectionConverters.asScala(producers)),
                Set$.MODULE$.from(CollectionConverters.asScala(states)), filters.get(2).asLong(), filters.get(3).asText());
        } catch (Exception exception) {
            return List.of(Errors.forException(exception).code());
        }
        List<String> found = new ArrayList<>();
        response.transactionStates().forEach(each ->
            found.add(each.transactionalId() + " " + each.producerId() + " " + each.transactionState()));
        response.unknownStateFilters().forEach(found::add);
        found.sort(null);
        return List.of(response.errorCode(), found);
    }

    Map<String, Object> report() {
        Map<String, Object> whole = new TreeMap<>(Map.of("answers", answers, "written", written, "markers", sent));
        whole.put("described", described());
        whole.put("listed", listed());
        answers = new ArrayList<>();
        written = new ArrayList<>();
        sent = new TreeSet<>();
        return whole;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        Transactions transactions = null;
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode step = MAPPER.readTree(line);
            if (step.get("op").asText().equals("begin")) {
                transactions = new Transactions(step);
            } else {
                transactions.make(step);
            }
            System.out.println(MAPPER.writeValueAsString(transactions.report()));
        }
        System.exit(0);
    }
}
