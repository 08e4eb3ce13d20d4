import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.quota.QuotaUtils;

/** What Kafka's own classes decide, one question of JSON a line: {"key", "partitions"} gives the key's hash and partition;
 * {"assignor", "counts", "members"} gives each member's partitions as [topic, number]; {"limit", "windows", "is_bucket", "uses"}
 * gives for how many ms a client is throttled after each of its uses [ms, amount], with windows as [number, seconds]. */
public class Decide {
    static final ObjectMapper JSON = new ObjectMapper();

    static Object answer(JsonNode question) {
        return question.has("key") ? partition(question) : question.has("limit") ? throttle(question) : assign(question);
    }

    static List<Long> throttle(JsonNode question) {
        boolean isBucket = question.get("is_bucket").asBoolean();
        double limit = question.get("limit").asDouble();
        MetricConfig config = new MetricConfig()
            .samples(question.get("windows").get(0).asInt())
            .timeWindow(question.get("windows").get(1).asLong(), TimeUnit.SECONDS)
            .quota(isBucket ? Quota.lowerBound(limit) : Quota.upperBound(limit));
        List<Long> throttles = new ArrayList<>();
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("use");
            sensor.add(new MetricName("use", "", "", Map.of()), isBucket ? new TokenBucket() : new Rate(), config);
            question.get("uses").forEach(use -> throttles.add(throttle(sensor, use.get(0).asLong(), use.get(1).asDouble(), isBucket)));
        }
        return throttles;
    }

    static long throttle(Sensor sensor, long now, double amount, boolean isBucket) {
        try {
            sensor.record(amount, now, true);
            return 0;
        } catch (QuotaViolationException violated) {
            return isBucket
                ? Math.round(-violated.value() / violated.bound() * 1000)
                : QuotaUtils.throttleTime(violated, now);
        }
    }

    static Object partition(JsonNode question) {
        byte[] key = HexFormat.of().parseHex(question.get("key").asText());
        int partitions = question.get("partitions").asInt();
        return List.of(Utils.murmur2(key), BuiltInPartitioner.partitionForKey(key, partitions));
    }

    static Object assign(JsonNode question) {
        Map<String, Integer> counts = new HashMap<>();
        question.get("counts").fields().forEachRemaining(each -> counts.put(each.getKey(), each.getValue().asInt()));
        Map<String, Subscription> members = new HashMap<>();
        question.get("members").fields().forEachRemaining(
            each -> members.put(each.getKey(), subscription(each.getKey(), each.getValue())));
        AbstractPartitionAssignor assignor = assignor(question.get("assignor").asText());
        Map<String, List<List<Object>>> assigned = new TreeMap<>();
        assignor.assign(counts, members).forEach((id, partitions) -> assigned.put(id,
            partitions.stream().map(each -> List.<Object>of(each.topic(), each.partition())).toList()));
        return assigned;
    }

    static AbstractPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Subscription subscription(String id, JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(each -> topics.add(each.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(each -> owned.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        int generation = member.get("generation").asInt();
        StickyAssignor own = new StickyAssignor();
        if (!owned.isEmpty())
            own.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("group", generation, id, Optional.empty()));
        Subscription subscription = new Subscription(
            topics, own.subscriptionUserData(java.util.Set.copyOf(topics)), owned, generation, Optional.empty());
        subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance_id").textValue()));
        return subscription;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine())
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }
}
