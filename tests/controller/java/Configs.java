import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what Apache Kafka declares of its topic and broker configurations: kind, name, type, default, validator, which of the given values may be had; and what is dynamic, for whom. */
public class Configs {
    static String[] values;

    /** For each value whether it may be had: 1 or 0. */
    static String taken(ConfigDef.ConfigKey key) {
        StringBuilder found = new StringBuilder();
        ConfigDef alone = new ConfigDef().define(key);
        for (String text : values) {
            try {
                alone.parse(Map.of(key.name, text));
                found.append('1');
            } catch (ConfigException error) {
                found.append('0');
            }
        }
        return found.toString();
    }

    static void print(String kind, ConfigDef definitions) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(definitions.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            String value;
            if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
                value = "<required>";
            } else if (key.defaultValue == null) {
                value = "<null>";
            } else if (key.defaultValue instanceof List<?> list) {
                value = String.join(",", list.stream().map(Object::toString).toList());
            } else {
                value = key.defaultValue.toString();
            }
            String validator = key.validator == null ? "" : key.validator.toString().replace('\n', ' ');
            System.out.println(String.join("\t", kind, entry.getKey(), key.type.toString().toLowerCase(), value, validator, taken(key)));
        }
    }

    public static void main(String[] arguments) throws Exception {
        values = arguments;
        print("topic", LogConfig.configDefCopy());
        print("broker", (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null));
        Class<?> dynamic = Class.forName("org.apache.kafka.server.config.DynamicBrokerConfig");
        Map<?, ?> modes = (Map<?, ?>) dynamic.getMethod("dynamicConfigUpdateModes").invoke(null);
        for (Map.Entry<?, ?> mode : modes.entrySet()) {
            System.out.println(String.join("\t", "dynamic", (String) mode.getKey(), (String) mode.getValue(), "", "", ""));
        }
    }
}
