import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.FetchMetadata;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.FetchContext;
import org.apache.kafka.server.FetchManager;
import org.apache.kafka.server.FetchSession;
import org.apache.kafka.server.FetchSessionCacheShard;

/** Kafka's own fetch sessions, one step of JSON a line: {"slots"} starts again with empty slots; {"ask", "forget", "version", "session", "epoch",
 * "follower", "now"} begins a fetch and gives the [partition, offset] to read; {"fetch", "results"} responds to the fetch of that
 * number by one result a partition, {"fetch", "throttled"} without records. A session is named by its number among those created. */
public class Sessions {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long EVICTION_MS = 120_000;
    static final Uuid ID = new Uuid(0, 9);
    static final int UNKNOWN = 77;

    final Clock clock = new Clock();
    final FetchManager manager;
    final List<Integer> created = new ArrayList<>();
    final List<FetchContext> fetches = new ArrayList<>();
    final List<Uuid> topics = new ArrayList<>();

    Sessions(int slots) {
        manager = new FetchManager(clock, new FetchSession.FetchSessionCache(
            List.of(new FetchSessionCacheShard(slots, EVICTION_MS, Integer.MAX_VALUE, 0))));
    }

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

        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        }
    }

    static TopicIdPartition partition(Uuid topic, int index) {
        return new TopicIdPartition(topic, new TopicPartition("t", index));
    }

    List<Object> begin(JsonNode step) {
        clock.now = step.get("now").asLong();
        int version = step.get("version").asInt();
        Uuid topic = version >= 13 ? ID : Uuid.ZERO_UUID;
        Map<TopicIdPartition, FetchRequest.PartitionData> asked = new LinkedHashMap<>();
        step.get("ask").forEach(each -> asked.put(partition(topic, each.get(0).asInt()), new FetchRequest.PartitionData(
            topic, each.get(1).asLong(), -1, 1000, Optional.empty(), Optional.empty())));
        List<TopicIdPartition> forgotten = new ArrayList<>();
        step.get("forget").forEach(each -> forgotten.add(partition(topic, each.asInt())));
        int number = step.get("session").asInt();
        int id = number < 0 ? 0 : number < created.size() ? created.get(number) : UNKNOWN;
        FetchContext fetch = manager.newContext((short) version, new FetchMetadata(id, step.get("epoch").asInt()),
            step.get("follower").asBoolean(), asked, forgotten, Map.of(ID, "t"));
        fetches.add(fetch);
        topics.add(topic);
        List<Object> wanted = new ArrayList<>();
        fetch.foreachPartition((key, data) -> wanted.add(List.of(key.partition(), data.fetchOffset)));
        return wanted;
    }

    List<Object> respond(JsonNode step) {
        clock.now = step.get("now").asLong();
        int number = step.get("fetch").asInt();
        FetchContext fetch = fetches.get(number);
        FetchResponse response;
        if (step.has("throttled"))
            response = fetch.getThrottledResponse(5, List.of());
        else {
            LinkedHashMap<TopicIdPartition, FetchResponseData.PartitionData> results = new LinkedHashMap<>();
            fetch.foreachPartition((key, asked) -> results.put(
                partition(topics.get(number), key.partition()), result(key.partition(), step.get("results").get(key.partition()))));
            response = fetch.updateAndGenerateResponseData(results, List.of());
        }
        int id = response.sessionId();
        if (id != 0 && !created.contains(id))
            created.add(id);
        List<Integer> partitions = new ArrayList<>();
        response.data().responses().forEach(topic -> topic.partitions().forEach(each -> partitions.add(each.partitionIndex())));
        return List.of(response.error().code(), id, partitions);
    }

    static FetchResponseData.PartitionData result(int partition, JsonNode each) {
        FetchResponseData.PartitionData result = new FetchResponseData.PartitionData()
            .setPartitionIndex(partition)
            .setErrorCode((short) each.get("error").asInt())
            .setHighWatermark(each.get("high_watermark").asLong())
            .setLogStartOffset(each.get("log_start").asLong())
            .setPreferredReadReplica(each.get("preferred").asInt())
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.allocate(each.get("bytes").asInt())));
        if (each.get("diverging").asBoolean())
            result.setDivergingEpoch(new FetchResponseData.EpochEndOffset().setEpoch(3).setEndOffset(7));
        return result;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        Sessions sessions = null;
        for (String line = steps.readLine(); line != null; line = steps.readLine()) {
            JsonNode step = JSON.readTree(line);
            if (step.has("slots")) {
                sessions = new Sessions(step.get("slots").asInt());
                System.out.println("[]");
            } else
                System.out.println(JSON.writeValueAsString(step.has("ask") ? sessions.begin(step) : sessions.respond(step)));
        }
    }
}
