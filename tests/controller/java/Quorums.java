import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.memory.MemoryPool;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.FetchSnapshotResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.ExpirationService;
import org.apache.kafka.raft.ExternalKRaftMetrics;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.NetworkChannel;
import org.apache.kafka.raft.QuorumConfig;
import org.apache.kafka.raft.QuorumState;
import org.apache.kafka.raft.RaftMessage;
import org.apache.kafka.raft.RaftMessageQueue;
import org.apache.kafka.raft.RaftRequest;
import org.apache.kafka.raft.RaftResponse;
import org.apache.kafka.raft.RaftUtil;
import org.apache.kafka.raft.internals.IdentitySerde;
import org.apache.kafka.raft.internals.KRaftControlRecordStateMachine;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.snapshot.SnapshotWriter;

/** One step of a quorum member a line; answers what the member sent, answered and is after the step. */
public class Quorums {
    static final ListenerName LISTENER = ListenerName.normalised("CONTROLLER");
    static final int TICK_MS = 10;
    /** What goes by with every response, so that pauses after some of them make no difference. */
    static final int PAUSE_MS = 20;
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final Clock CLOCK = new Clock();

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

    static class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() {
            super(() -> null);
        }

        public long getDelay(TimeUnit unit) {
            return 0;
        }

        public int compareTo(Delayed other) {
            return 0;
        }
    }

    /** What is to be done once and at once is done; nothing else is. */
    static class AtOnce implements Scheduler {
        public void startup() {
        }

        public void shutdown() {
        }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0 && delayMs == 0) {
                task.run();
            }
            return new Never();
        }

        public void resizeThreadPool(int newSize) {
        }
    }

    /** The requests that wait, by the time at which they are given up. */
    static class Expirations implements ExpirationService {
        final TreeMap<Long, List<CompletableFuture<?>>> futures = new TreeMap<>();

        public <T> CompletableFuture<T> failAfter(long timeoutMs) {
            CompletableFuture<T> future = new CompletableFuture<>();
            futures.computeIfAbsent(CLOCK.now + timeoutMs, any -> new ArrayList<>()).add(future);
            return future;
        }

        void expire() {
            while (!futures.isEmpty() && futures.firstKey() <= CLOCK.now) {
                futures.pollFirstEntry().getValue().forEach(each -> each.completeExceptionally(new TimeoutException()));
            }
        }
    }

    static class Queue implements RaftMessageQueue {
        final ArrayDeque<RaftMessage> messages = new ArrayDeque<>();
        long waits;

        public RaftMessage poll(long timeoutMs) {
            waits = messages.isEmpty() ? timeoutMs : 0;
            return messages.poll();
        }

        public void add(RaftMessage message) {
            messages.add(message);
        }

        public boolean isEmpty() {
            return messages.isEmpty();
        }

        public void wakeup() {
        }
    }

    static class Channel implements NetworkChannel {
        int last;
        final List<RaftRequest.Outbound> open = new ArrayList<>();
        final List<Map<String, Object>> sent = new ArrayList<>();

        public int newCorrelationId() {
            return ++last;
        }

        public void send(RaftRequest.Outbound request) {
            open.add(request);
            sent.add(message(request.destination().id(), request.data()));
        }

        public ListenerName listenerName() {
            return LISTENER;
        }
    }

    /** The member under test. */
    static class Member {
        final JsonNode begin;
        final Path folder;
        final Queue queue = new Queue();
        final Channel channel = new Channel();
        final Expirations expirations = new Expirations();
        final List<Map<String, Object>> answers = new ArrayList<>();
        KafkaRaftLog log;
        KafkaRaftClient<ByteBuffer> client;
        QuorumState quorum;
        KRaftControlRecordStateMachine partition;
        String dead;

        Member(JsonNode begin) throws Exception {
            this.begin = begin;
            folder = Path.of(begin.get("folder").asText()).resolve("__cluster_metadata-0");
            Files.createDirectories(folder);
            if (begin.has("checkpoint")) {
                Files.write(folder.resolve("00000000000000000000-0000000000.checkpoint"), bytes(begin.get("checkpoint")));
            }
            start();
        }

        @SuppressWarnings("unchecked")
        void start() throws Exception {
            Map<String, Object> settings = new HashMap<>();
            begin.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
            MetadataLogConfig logConfig = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF,
                Map.of("metadata.max.retention.bytes", "-1", "metadata.max.retention.ms", "-1"), false));
            int node = begin.get("node").asInt();
            log = KafkaRaftLog.createLog(new TopicPartition("__cluster_metadata", 0), Uuid.METADATA_TOPIC_ID, folder.toFile(), CLOCK,
                new AtOnce(), logConfig, node);
            List<InetSocketAddress> bootstrap = new ArrayList<>();
            begin.get("bootstrap").forEach(each -> bootstrap.add(InetSocketAddress.createUnresolved(each.asText(), 9093)));
            Map<Integer, InetSocketAddress> voters = new LinkedHashMap<>();
            begin.get("voters").forEach(each ->
                voters.put(each.asInt(), InetSocketAddress.createUnresolved("node-" + each.asInt(), 9093)));
            Random random = new Random() {
                public int nextInt(int bound) {
                    return bound > 100 ? (int) (bound * begin.get("chance").asDouble()) : 0;
                }
            };
            Endpoints listeners = Endpoints.fromInetSocketAddresses(
                Map.of(LISTENER, InetSocketAddress.createUnresolved("node-" + node, 9093)));
            Constructor<?> made = null;
            for (Constructor<?> each : KafkaRaftClient.class.getDeclaredConstructors()) {
                made = each.getParameterCount() == 18 ? each : made;
            }
            made.setAccessible(true);
            client = (KafkaRaftClient<ByteBuffer>) made.newInstance(OptionalInt.of(node), Uuid.fromString(begin.get("directory").asText()),
                IdentitySerde.INSTANCE, channel, queue, log, MemoryPool.NONE, CLOCK, expirations, 500, true, "a-cluster", bootstrap,
                listeners, new SupportedVersionRange((short) 0, (short) 1), new LogContext(), random,
                new QuorumConfig(new AbstractConfig(QuorumConfig.CONFIG_DEF, settings, false)));
            ExternalKRaftMetrics none = any -> { };
            client.initialize(voters, new FileQuorumStateStore(folder.resolve("quorum-state").toFile()), new Metrics(), none);
            Method found = KafkaRaftClient.class.getDeclaredMethod("quorum");
            found.setAccessible(true);
            quorum = (QuorumState) found.invoke(client);
            Field state = KafkaRaftClient.class.getDeclaredField("partitionState");
            state.setAccessible(true);
            partition = (KRaftControlRecordStateMachine) state.get(client);
        }

        void settle() {
            for (int turn = 0; turn < 12; turn++) {
                client.poll();
                if (queue.isEmpty() && queue.waits > 0) {
                    return;
                }
            }
        }

        void pass(int ms) {
            for (int left = ms; left > 0; left -= TICK_MS) {
                CLOCK.now += TICK_MS;
                expirations.expire();
                settle();
            }
        }

        RaftRequest.Outbound taken(JsonNode step) {
            int peer = step.get("peer").asInt();
            int api = step.get("api").asInt();
            boolean any = step.get("any").asBoolean();
            RaftRequest.Outbound latest = null;
            for (RaftRequest.Outbound request : channel.open) {
                boolean isIt = request.data().apiKey() == api && (any || request.destination().id() == peer);
                latest = isIt ? request : latest;
            }
            if (latest != null) {
                channel.open.remove(latest);
                return latest;
            }
            throw new IllegalArgumentException("no such request is open");
        }

        void take(JsonNode step) throws Exception {
            switch (step.get("op").asText()) {
                case "begin": settle(); return;
                case "time": pass(step.get("ms").asInt()); return;
                case "restart":
                    log.close();
                    channel.open.clear();
                    queue.messages.clear();
                    expirations.futures.clear();
                    start();
                    settle();
                    return;
                case "request": {
                    short api = (short) step.get("api").asInt();
                    short version = (short) step.get("version").asInt();
                    ApiMessage data = ApiMessageType.fromApiKey(api).newRequest();
                    data.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes(step.get("data")))), version);
                    RaftRequest.Inbound request = new RaftRequest.Inbound(LISTENER, channel.newCorrelationId(), version, data, CLOCK.now);
                    int token = step.get("token").asInt();
                    request.completion.thenAccept(found -> answers.add(message(token, found.data())));
                    client.handle(request);
                    settle();
                    return;
                }
                case "response": {
                    RaftRequest.Outbound request = taken(step);
                    short version = (short) step.get("version").asInt();
                    ApiMessage data = ApiMessageType.fromApiKey(request.data().apiKey()).newResponse();
                    data.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes(step.get("data")))), version);
                    request.completion.complete(new RaftResponse.Inbound(request.correlationId(), data, request.destination()));
                    settle();
                    pass(PAUSE_MS);
                    return;
                }
                case "lost": {
                    RaftRequest.Outbound request = taken(step);
                    ApiMessage data = RaftUtil.errorResponse(ApiKeys.forId(request.data().apiKey()), Errors.BROKER_NOT_AVAILABLE);
                    request.completion.complete(new RaftResponse.Inbound(request.correlationId(), data, request.destination()));
                    settle();
                    pass(PAUSE_MS);
                    return;
                }
                case "append": {
                    List<ByteBuffer> records = new ArrayList<>();
                    step.get("records").forEach(each -> records.add(ByteBuffer.wrap(bytes(each))));
                    client.prepareAppend(quorum.epoch(), records);
                    client.schedulePreparedAppend();
                    settle();
                    return;
                }
                case "snapshot": {
                    OffsetAndEpoch id = new OffsetAndEpoch(step.get("offset").asLong(), step.get("epoch").asInt());
                    SnapshotWriter<ByteBuffer> writer = client.createSnapshot(id, step.get("timestamp").asLong()).orElseThrow();
                    writer.freeze();
                    settle();
                    return;
                }
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        Map<String, Object> state() {
            Map<String, Object> found = new HashMap<>();
            found.put("epoch", quorum.epoch());
            found.put("leader", quorum.leaderIdOrSentinel());
            found.put("voted", quorum.votedKey().map(key -> key.id() + " " + key.directoryId().map(Uuid::toString).orElse("-")).orElse("-"));
            found.put("role", quorum.isLeader() ? "leader" : quorum.isCandidate() ? "candidate" : quorum.isProspective() ? "prospective"
                : quorum.isFollower() ? "follower" : quorum.isResigned() ? "resigned" : "unattached");
            found.put("high watermark", quorum.highWatermark().map(LogOffsetMetadata::offset).orElse(-1L));
            found.put("start", log.startOffset());
            found.put("end", log.endOffset().offset());
            found.put("last epoch", log.lastFetchedEpoch());
            TreeSet<String> voters = new TreeSet<>();
            partition.lastVoterSet().voterKeys().forEach(key ->
                voters.add(key.id() + " " + key.directoryId().map(Uuid::toString).orElse("-")));
            found.put("voters", voters);
            found.put("level", partition.lastKraftVersion().featureLevel());
            return found;
        }
    }

    static byte[] bytes(JsonNode hex) {
        return HexFormat.of().parseHex(hex.asText());
    }

    /** A message in its newest version, with records that are in memory. */
    static Map<String, Object> message(int peer, ApiMessage data) {
        try {
            if (data instanceof FetchResponseData fetched) {
                for (FetchResponseData.FetchableTopicResponse topic : fetched.responses()) {
                    for (FetchResponseData.PartitionData each : topic.partitions()) {
                        if (each.records() instanceof FileRecords file) {
                            ByteBuffer buffer = ByteBuffer.allocate(file.sizeInBytes());
                            file.readInto(buffer, 0);
                            each.setRecords(MemoryRecords.readableRecords(buffer));
                        }
                    }
                }
            } else if (data instanceof FetchSnapshotResponseData piece) {
                piece.topics().forEach(topic -> topic.partitions().forEach(each -> each.setUnalignedRecords(MemoryRecords.EMPTY)));
            }
            ApiMessageType type = ApiMessageType.fromApiKey(data.apiKey());
            boolean isRequest = data.getClass().getSimpleName().endsWith("RequestData");
            short version = isRequest ? type.highestSupportedVersion(true) : type.highestSupportedVersion(true);
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(data, version).buffer();
            byte[] all = new byte[buffer.remaining()];
            buffer.get(all);
            Map<String, Object> found = new HashMap<>();
            found.put("peer", peer);
            found.put("api", (int) data.apiKey());
            found.put("version", (int) version);
            found.put("data", HexFormat.of().formatHex(all));
            return found;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        Member member = null;
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode step = MAPPER.readTree(line);
            Map<String, Object> found = new HashMap<>();
            try {
                if (step.get("op").asText().equals("begin")) {
                    CLOCK.now = step.get("now").asLong();
                    member = new Member(step);
                }
                if (member.dead == null) {
                    member.take(step);
                    found.putAll(member.state());
                    found.put("sent", new ArrayList<>(member.channel.sent));
                    found.put("answers", new ArrayList<>(member.answers));
                    member.channel.sent.clear();
                    member.answers.clear();
                }
            } catch (Throwable error) {
                Throwable cause = error.getCause() != null && error instanceof java.lang.reflect.InvocationTargetException ? error.getCause() : error;
                if (member == null) {
                    throw error;
                }
                member.dead = cause.toString();
            }
            if (member.dead != null) {
                found.put("dead", member.dead);
            }
            System.out.println(MAPPER.writeValueAsString(found));
        }
        System.exit(0);
    }
}
