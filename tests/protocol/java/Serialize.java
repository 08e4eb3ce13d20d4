import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "CLASS VERSION JSON" and answers each with the hexadecimal bytes that Kafka's own serializer makes of it,
 * or with "! REASON".
 */
public class Serialize {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, "UTF-8")));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            try {
                short version = Short.parseShort(words[1]);
                Message message = (Message) Class.forName(words[0] + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class)
                    .invoke(null, mapper.readTree(words[2]), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(buffer), cache, version);
                out.println(HexFormat.of().formatHex(buffer.array()));
            } catch (java.lang.reflect.InvocationTargetException error) {
                out.println("! " + error.getCause());
            } catch (Exception error) {
                out.println("! " + error);
            }
        }
        out.flush();
    }
}
