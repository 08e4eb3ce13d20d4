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
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;

/** What Kafka's own clients decide, one question of JSON a line: {"key", "partitions"} gives the key's hash and partition;
 * {"assignor", "counts", "members"} gives each member's partitions as [topic, number]. */
public class Decide {
    static final ObjectMapper JSON = new ObjectMapper();

    static Object answer(JsonNode question) {
        return question.has("key") ? partition(question) : assign(question);
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
