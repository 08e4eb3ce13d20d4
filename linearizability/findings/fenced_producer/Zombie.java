import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** A transactional producer of the Java client that does what each line of standard input says, and prints how it went. */
public class Zombie {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        StringSerializer strings = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, strings, strings)) {
            for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
                String[] words = lines.nextLine().split(" ", 3);
                String sent = "";
                try {
                    switch (words[0]) {
                        case "init" -> producer.initTransactions();
                        case "begin" -> producer.beginTransaction();
                        case "commit" -> producer.commitTransaction();
                        case "abort" -> producer.abortTransaction();
                        default ->
                            sent = producer.send(new ProducerRecord<>(words[1], 0, null, words[2])).get().offset() + " ";
                    }
                    System.out.println("> " + sent + "success");
                } catch (Exception error) {
                    Throwable cause = error.getCause() == null ? error : error.getCause();
                    System.out.println("> " + cause.getClass().getSimpleName());
                }
            }
        }
    }
}
