import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.security.Provider;
import java.security.SecureRandomSpi;
import java.security.Security;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupDescribeResponseData;
import org.apache.kafka.common.message.DeleteGroupsResponseData;
import org.apache.kafka.common.message.DescribeGroupsResponseData;
import org.apache.kafka.common.message.OffsetFetchRequestData;
import org.apache.kafka.common.message.OffsetFetchResponseData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.ConsumerGroupDescribeRequest;
import org.apache.kafka.common.requests.ConsumerGroupHeartbeatRequest;
import org.apache.kafka.common.requests.DeleteGroupsRequest;
import org.apache.kafka.common.requests.DescribeGroupsRequest;
import org.apache.kafka.common.requests.HeartbeatRequest;
import org.apache.kafka.common.requests.JoinGroupRequest;
import org.apache.kafka.common.requests.LeaveGroupRequest;
import org.apache.kafka.common.requests.LeaveGroupResponse;
import org.apache.kafka.common.requests.ListGroupsRequest;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetDeleteRequest;
import org.apache.kafka.common.requests.OffsetFetchRequest;
import org.apache.kafka.common.requests.OffsetFetchResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.SyncGroupRequest;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.requests.TxnOffsetCommitRequest;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEvent;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEventProcessor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoader;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime;
import org.apache.kafka.coordinator.common.runtime.PartitionWriter;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorService;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorRuntimeMetrics;
import org.apache.kafka.coordinator.group.modern.MemberAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.share.persister.NoOpStatePersister;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** One step of Kafka's group coordinator a line; answers what became complete, what was written, and the groups after it. */
public class Groups {
    static final TopicPartition PARTITION = new TopicPartition("__consumer_offsets", 0);
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

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

    /** What is due when the clock is moved. */
    class ManualTimer implements Timer {
        final List<TimerTaskEntry> waiting = new ArrayList<>();

        public void add(TimerTask task) {
            waiting.add(new TimerTaskEntry(task, clock.now + Math.max(task.delayMs, 1))); // ours waits at least so long
        }

        public boolean advanceClock(long end) {
            while (true) {
                waiting.removeIf(TimerTaskEntry::cancelled);
                Optional<TimerTaskEntry> next = waiting.stream().filter(each -> each.expirationMs <= end)
                    .min(Comparator.comparingLong(each -> each.expirationMs));
                if (next.isEmpty()) {
                    clock.now = end;
                    return true;
                }
                waiting.remove(next.get());
                clock.now = Math.max(clock.now, next.get().expirationMs);
                next.get().timerTask.run();
            }
        }

        public int size() {
            return waiting.size();
        }

        public void close() {
        }
    }

    /** Events run at once, those that an event brings after it. */
    static class Events implements CoordinatorEventProcessor {
        final ArrayDeque<CoordinatorEvent> queue = new ArrayDeque<>();
        boolean isRunning;

        public void enqueueLast(CoordinatorEvent event) {
            queue.addLast(event);
            run();
        }

        public void enqueueFirst(CoordinatorEvent event) {
            queue.addFirst(event);
            run();
        }

        void run() {
            while (!isRunning && !queue.isEmpty()) {
                isRunning = true;
                CoordinatorEvent event = queue.removeFirst();
                try {
                    event.run();
                } catch (Throwable error) {
                    event.complete(error);
                }
                isRunning = false;
            }
        }

        public void close() {
        }
    }

    /** Work of the background is done at once. */
    static class AtOnce extends AbstractExecutorService {
        public void execute(Runnable work) {
            work.run();
        }

        public void shutdown() {
        }

        public List<Runnable> shutdownNow() {
            return List.of();
        }

        public boolean isShutdown() {
            return false;
        }

        public boolean isTerminated() {
            return false;
        }

        public boolean awaitTermination(long timeout, TimeUnit unit) {
            return true;
        }
    }

    /** The coordinator's partition: what is appended is committed at once, unless the next append is to fail. */
    class Log implements PartitionWriter {
        Listener listener;
        long end;

        public void registerListener(TopicPartition partition, Listener listener) {
            this.listener = listener;
        }

        public void deregisterListener(TopicPartition partition, Listener listener) {
        }

        public LogConfig config(TopicPartition partition) {
            return new LogConfig(Map.of());
        }

        public long append(TopicPartition partition, VerificationGuard guard, MemoryRecords records, short version) {
            if (refusal != null) {
                throw refusal.exception();
            }
            for (RecordBatch batch : records.batches()) {
                for (Record each : batch) {
                    written.add(List.of(hex(each.key()), each.hasValue() ? hex(each.value()) : "", batch.producerId(),
                        batch.isControlBatch()));
                    end++;
                }
            }
            listener.onHighWatermarkUpdated(PARTITION, end);
            return end;
        }

        public CompletableFuture<VerificationGuard> maybeStartTransactionVerification(TopicPartition partition, String id,
                long producer, short epoch, int version) {
            return CompletableFuture.completedFuture(VerificationGuard.SENTINEL);
        }

        public CompletableFuture<Void> deleteRecords(TopicPartition partition, long offset) {
            return CompletableFuture.completedFuture(null);
        }
    }

    /** Replays the log of a step. */
    class Loader implements CoordinatorLoader<CoordinatorRecord> {
        public CompletableFuture<LoadSummary> load(TopicPartition partition, CoordinatorPlayback<CoordinatorRecord> playback) {
            for (JsonNode each : log) {
                long producer = each.get(2).asLong();
                if (each.get(3).asBoolean()) {
                    playback.replayEndTransactionMarker(producer, (short) 0,
                        each.get(0).asText().equals("commit") ? TransactionResult.COMMIT : TransactionResult.ABORT);
                } else {
                    String value = each.get(1).asText();
                    CoordinatorRecord read = SERDE.deserialize(ByteBuffer.wrap(bytes(each.get(0))),
                        value.isEmpty() ? null : ByteBuffer.wrap(bytes(each.get(1))));
                    playback.replay(partitionLog.end, producer, (short) 0, read);
                }
                partitionLog.end++;
            }
            if (partitionLog.end > 0) {
                playback.updateLastWrittenOffset(partitionLog.end);
                playback.updateLastCommittedOffset(partitionLog.end);
            }
            return CompletableFuture.completedFuture(new LoadSummary(0, 0, 0, log.size(), 0));
        }

        public void close() {
        }
    }

    /** Gives the partitions of each topic out in turn, by the order of the member ids; no hash decides. */
    public static class Spread implements ConsumerGroupPartitionAssignor {
        public String name() {
            return "spread";
        }

        List<String> order(Stream<String> ids) {
            return ids.sorted().toList();
        }

        public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
            Map<String, Map<Uuid, Set<Integer>>> given = new HashMap<>();
            Set<Uuid> named = new HashSet<>();
            group.memberIds().forEach(id -> given.put(id, new HashMap<>()));
            group.memberIds().forEach(id -> named.addAll(group.memberSubscription(id).subscribedTopicIds()));
            for (Uuid topic : named) {
                List<String> ids = order(group.memberIds().stream()
                    .filter(id -> group.memberSubscription(id).subscribedTopicIds().contains(topic)));
                for (int index = 0; index < topics.numPartitions(topic); index++) {
                    given.get(ids.get(index % ids.size())).computeIfAbsent(topic, any -> new HashSet<>()).add(index);
                }
            }
            Map<String, MemberAssignment> assigned = new HashMap<>();
            given.forEach((id, partitions) -> assigned.put(id, new MemberAssignmentImpl(partitions)));
            return new GroupAssignment(assigned);
        }
    }

    /** The same from the last member on. */
    public static class Reversed extends Spread {
        public String name() {
            return "reversed";
        }

        List<String> order(Stream<String> ids) {
            return ids.sorted(Comparator.reverseOrder()).toList();
        }
    }

    /** Member ids are random: here each run draws the same ones. */
    public static class Drawn extends SecureRandomSpi {
        static Random random = new Random(0);

        protected void engineSetSeed(byte[] seed) {
        }

        protected void engineNextBytes(byte[] bytes) {
            random.nextBytes(bytes);
        }

        protected byte[] engineGenerateSeed(int count) {
            return new byte[count];
        }
    }

    final Clock clock = new Clock();
    final Events events = new Events();
    final Log partitionLog = new Log();
    final ManualTimer timer = new ManualTimer();
    final GroupCoordinatorService service;
    JsonNode log = MAPPER.createArrayNode();
    MetadataImage image = MetadataImage.EMPTY;
    long version;
    int epoch;
    Errors refusal;
    List<List<Object>> written = new ArrayList<>();
    Map<String, String> answers = new TreeMap<>();

    Groups(JsonNode step) throws Exception {
        clock.now = step.get("now").asLong();
        Drawn.random = new Random(step.get("seed").asLong());
        Map<String, Object> settings = new HashMap<>();
        step.get("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        settings.put("group.consumer.assignors", List.of(Spread.class, Reversed.class, "range"));
        GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(settings);
        GroupConfigManager groups = new GroupConfigManager(Map.of(), config, ShareGroupConfig.fromProps(settings));
        GroupCoordinatorMetrics metrics = new GroupCoordinatorMetrics();
        CoordinatorRuntime<GroupCoordinatorShard, CoordinatorRecord> runtime =
            new CoordinatorRuntime.Builder<GroupCoordinatorShard, CoordinatorRecord>().withTime(clock).withTimer(timer)
                .withEventProcessor(events).withPartitionWriter(partitionLog).withLoader(new Loader())
                .withCoordinatorShardBuilderSupplier(() -> new GroupCoordinatorShard.Builder(config, groups)
                    .withAuthorizerPlugin(Optional.empty()))
                .withCoordinatorRuntimeMetrics(new GroupCoordinatorRuntimeMetrics(new Metrics())).withCoordinatorMetrics(metrics)
                .withSerializer(SERDE).withAppendLingerMs(OptionalInt.of(0)).withExecutorService(new AtOnce())
                .withWriteTimeout(Duration.ofDays(1000)).withCachedBufferMaxBytesSupplier(() -> 1 << 20).build();
        Constructor<?> constructor = GroupCoordinatorService.class.getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        service = (GroupCoordinatorService) constructor.newInstance(new LogContext(), config, runtime, metrics, groups,
            new NoOpStatePersister(), timer, null);
        service.startup(() -> 1);
        topics(step);
        service.onElection(0, epoch);
    }

    static byte[] bytes(JsonNode hex) {
        return HexFormat.of().parseHex(hex.asText());
    }

    static String hex(ByteBuffer data) {
        byte[] copy = new byte[data.remaining()];
        data.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    static String hex(ApiMessage message) {
        boolean hasNames = message.apiKey() == ApiKeys.OFFSET_COMMIT.id || message.apiKey() == ApiKeys.OFFSET_FETCH.id;
        short version = hasNames ? 9 : message.highestSupportedVersion();
        return version + " " + hex(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }

    /** Another image: topics that are not named are gone, and the version grows. */
    void topics(JsonNode step) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        for (JsonNode each : step.get("brokers")) {
            int id = each.get(0).asInt();
            if (image.cluster().broker(id) == null) {
                String rack = each.get(1).asText();
                delta.replay(new RegisterBrokerRecord().setBrokerId(id).setRack(rack.isEmpty() ? null : rack).setFenced(false));
            }
        }
        Map<Uuid, JsonNode> named = new HashMap<>();
        for (JsonNode each : step.get("topics")) {
            Uuid id = new Uuid(each.get("id").get(0).asLong(), each.get("id").get(1).asLong());
            named.put(id, each);
        }
        for (Uuid id : image.topics().topicsById().keySet()) {
            if (!named.containsKey(id)) {
                delta.replay(new RemoveTopicRecord().setTopicId(id));
            }
        }
        named.forEach((id, each) -> {
            int known = image.topics().getTopic(id) == null ? 0 : image.topics().getTopic(id).partitions().size();
            if (known == 0) {
                delta.replay(new TopicRecord().setName(each.get("name").asText()).setTopicId(id));
            }
            for (int index = known; index < each.get("replicas").size(); index++) {
                List<Integer> replicas = new ArrayList<>();
                each.get("replicas").get(index).forEach(replica -> replicas.add(replica.asInt()));
                delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(index).setReplicas(replicas).setIsr(replicas)
                    .setLeader(replicas.get(0)));
            }
        });
        image = delta.apply(new MetadataProvenance(step.get("version").asLong(), 0, clock.now, true));
        service.onMetadataUpdate(delta, image);
    }

    void load(JsonNode step) {
        service.onResignation(0, OptionalInt.of(++epoch));
        log = step.get("log");
        partitionLog.end = 0;
        service.onElection(0, ++epoch);
    }

    void request(JsonNode step) throws Exception {
        ApiKeys api = ApiKeys.valueOf(step.get("api").asText());
        short version = (short) step.get("version").asInt();
        ByteBufferAccessor body = new ByteBufferAccessor(ByteBuffer.wrap(bytes(step.get("body"))));
        AbstractRequest request = AbstractRequest.parseRequest(api, version, body).request;
        RequestContext context = new RequestContext(new RequestHeader(api, version, step.get("client").asText(), 0), "",
            InetAddress.getByName("127.0.0.1"), KafkaPrincipal.ANONYMOUS, new ListenerName("L"), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
        String token = step.get("token").asText();
        answer(context, request).whenComplete((response, error) ->
            answers.put(token, error == null ? hex(response) : "error " + error));
    }

    CompletableFuture<? extends ApiMessage> answer(RequestContext context, AbstractRequest request) {
        BufferSupplier buffers = BufferSupplier.NO_CACHING;
        if (request instanceof JoinGroupRequest each) {
            return service.joinGroup(context, each.data(), buffers);
        } else if (request instanceof SyncGroupRequest each) {
            return service.syncGroup(context, each.data(), buffers);
        } else if (request instanceof HeartbeatRequest each) {
            return service.heartbeat(context, each.data());
        } else if (request instanceof LeaveGroupRequest each) {
            return service.leaveGroup(context, each.normalizedData())
                .thenApply(left -> new LeaveGroupResponse(left, (short) context.requestVersion()).data());
        } else if (request instanceof ConsumerGroupHeartbeatRequest each) {
            return service.consumerGroupHeartbeat(context, each.data());
        } else if (request instanceof OffsetCommitRequest each) {
            each.data().topics().forEach(topic -> topic.setTopicId(image.topics().getTopic(topic.name()).id()));
            return service.commitOffsets(context, each.data(), buffers);
        } else if (request instanceof TxnOffsetCommitRequest each) {
            return service.commitTransactionalOffsets(context, each.data(), buffers);
        } else if (request instanceof OffsetDeleteRequest each) {
            return service.deleteOffsets(context, each.data(), buffers);
        } else if (request instanceof ListGroupsRequest each) {
            return service.listGroups(context, each.data());
        } else if (request instanceof OffsetFetchRequest each) {
            OffsetFetchRequestData.OffsetFetchRequestGroup asked = each.data().groups().get(0);
            return service.fetchOffsets(context, asked, each.data().requireStable())
                .exceptionally(error -> OffsetFetchResponse.groupError(asked, Errors.forException(error), context.apiVersion()))
                .thenApply(group -> new OffsetFetchResponseData().setGroups(List.of(group)));
        } else if (request instanceof DeleteGroupsRequest each) {
            return service.deleteGroups(context, each.data().groupsNames(), buffers)
                .thenApply(results -> new DeleteGroupsResponseData().setResults(results));
        } else if (request instanceof DescribeGroupsRequest each) {
            return service.describeGroups(context, each.data().groups())
                .thenApply(groups -> new DescribeGroupsResponseData().setGroups(groups));
        } else if (request instanceof ConsumerGroupDescribeRequest each) {
            return service.consumerGroupDescribe(context, each.data().groupIds())
                .thenApply(groups -> new ConsumerGroupDescribeResponseData().setGroups(groups));
        }
        throw new IllegalArgumentException(request.toString());
    }

    void endTransaction(JsonNode step) {
        service.completeTransaction(PARTITION, step.get("producer").asLong(), (short) step.get("epoch").asInt(), 0,
            step.get("commits").asBoolean() ? TransactionResult.COMMIT : TransactionResult.ABORT, (short) 1);
    }

    void make(JsonNode step) throws Exception {
        timer.advanceClock(step.get("now").asLong());
        refusal = step.has("refusal") ? Errors.valueOf(step.get("refusal").asText()) : null;
        switch (step.get("op").asText()) {
            case "request" -> request(step);
            case "topics" -> topics(step);
            case "load" -> load(step);
            case "end transaction" -> endTransaction(step);
            default -> { }
        }
        timer.advanceClock(step.get("now").asLong());
        refusal = null;
        for (JsonNode each : step.get("probes")) {
            request(each);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Provider drawn = new Provider("drawn", "1", "") {
        };
        drawn.put("SecureRandom.Drawn", Drawn.class.getName());
        Security.insertProviderAt(drawn, 1);
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        Groups groups = null;
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode step = MAPPER.readTree(line);
            if (step.get("op").asText().equals("begin")) {
                groups = new Groups(step);
            } else {
                groups.make(step);
            }
            System.out.println(MAPPER.writeValueAsString(Map.of("answers", groups.answers, "written", groups.written)));
            groups.answers = new TreeMap<>();
            groups.written = new ArrayList<>();
        }
        System.exit(0);
    }
}
