import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.slf4j.LoggerFactory;

/** Log directories, one a line, as a node with id 1 takes them up before it starts: the cluster's id and the directory's. */
public class Metas {
    static Map<String, String> opened(String folder) {
        KafkaConfig config = new KafkaConfig(Map.of("process.roles", "broker,controller", "node.id", "1", "log.dirs", folder,
            "controller.quorum.voters", "1@localhost:9093", "controller.listener.names", "CONTROLLER",
            "listeners", "PLAINTEXT://localhost:0,CONTROLLER://localhost:9093",
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"), false);
        try {
            MetaProperties found = KafkaRaftServer.initializeLogDirs(config, LoggerFactory.getLogger(Metas.class), "")._1().logDirProps().get(folder);
            return Map.of("cluster", found.clusterId().get(), "directory", found.directoryId().get().toString());
        } catch (RuntimeException error) {
            return Map.of("refused", error.toString());
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            System.out.println(mapper.writeValueAsString(opened(line)));
        }
        System.exit(0);  // other threads would go on
    }
}
