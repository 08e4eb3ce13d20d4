import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;

/** Reads a broker's properties as JSON, one file a line, and prints why Apache Kafka refuses it, or that it does not. */
public class Files {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties properties = new Properties();
            properties.putAll(mapper.readValue(line, Map.class));
            String refused = null;
            try {
                KafkaConfig.fromProps(properties, false);
            } catch (RuntimeException error) {
                refused = error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(mapper.writeValueAsString(java.util.Arrays.asList(refused)));
        }
    }
}
