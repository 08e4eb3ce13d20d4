import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** One case a line: a partition, what it shall be, and the terms. Answers the change's record and what it makes of the
 * partition, both as the metadata log holds them, or "-" where nothing changes. */
public class Changes {
    static int[] array(JsonNode node) {
        return list(node).stream().mapToInt(each -> each).toArray();
    }

    static List<Integer> list(JsonNode node) {
        List<Integer> found = new ArrayList<>();
        node.forEach(each -> found.add(each.asInt()));
        return found;
    }

    static Uuid directory(int number) {
        return new Uuid(0, number);
    }

    static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        java.nio.ByteBuffer buffer = java.nio.ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new org.apache.kafka.common.protocol.ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }

    static String answer(JsonNode kase) {
        JsonNode now = kase.get("partition");
        JsonNode target = kase.get("target");
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(now.get("replicas")))
            .setDirectories(list(now.get("directories")).stream().map(Changes::directory).toArray(Uuid[]::new))
            .setIsr(array(now.get("isr")))
            .setRemovingReplicas(array(now.get("removing")))
            .setAddingReplicas(array(now.get("adding")))
            .setElr(array(now.get("elr")))
            .setLastKnownElr(array(now.get("last_known_elr")))
            .setLeader(now.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) now.get("recovery").asInt()))
            .setLeaderEpoch(7)
            .setPartitionEpoch(11)
            .build();
        Set<Integer> alive = new HashSet<>(list(kase.get("alive")));
        Uuid topic = directory(1000);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, topic, 3, alive::contains, MetadataVersion.fromFeatureLevel((short) 30),
            kase.get("min_isr").asInt(), kase.get("has_elr").asBoolean());
        builder.setElection(PartitionChangeBuilder.Election.valueOf(kase.get("election").asText()))
            .setDefaultDirProvider(broker -> directory(500 + broker))
            .setTargetIsr(list(target.get("isr")))
            .setTargetReplicas(list(target.get("replicas")))
            .setTargetRemoving(list(target.get("removing")))
            .setTargetAdding(list(target.get("adding")))
            .setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) target.get("recovery").asInt()));
        int lost = kase.get("lost_its_tail").asInt();
        if (lost >= 0) {
            builder.setUncleanShutdownReplicas(List.of(lost));
        }
        Optional<ApiMessageAndVersion> record = builder.build();
        if (record.isEmpty()) {
            return "-";
        }
        PartitionRegistration after = partition.merge((PartitionChangeRecord) record.get().message());
        ImageWriterOptions options =
            new ImageWriterOptions.Builder(MetadataVersion.fromFeatureLevel((short) 30)).setEligibleLeaderReplicasEnabled(true).build();
        return hex(record.get()) + " " + hex(after.toRecord(topic, 3, options));
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            answers.append(answer(mapper.readTree(line))).append('\n');
        }
        System.out.print(answers);
    }
}
