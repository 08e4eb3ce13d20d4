import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

/**
 * Kafka's own record batches for the tests. Reads lines and answers each with one:
 *   read HEX                  what Kafka finds in these bytes (see describe in tests/protocol/records/java_records.py)
 *   write MAGIC CODEC TYPE BASE PRODUCER EPOCH SEQUENCE TRANSACTIONAL LEADER RECORD...   the bytes that Kafka makes of it
 *   marker TYPE PRODUCER EPOCH COORDINATOR TIMESTAMP OFFSET                              a transaction's end
 * RECORD is OFFSET,TIMESTAMP,KEY,VALUE,HEADER=VALUE;...   bytes are hexadecimal, null is ~.
 */
public class Records {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                System.out.println(words[0].equals("read") ? read(words) : words[0].equals("write") ? write(words) : marker(words));
            } catch (Exception error) {
                System.out.println("! " + error);
            }
        }
    }

    static String read(String[] words) {
        StringJoiner batches = new StringJoiner(" ");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[1]))).batches()) {
            batch.ensureValid();
            StringJoiner records = new StringJoiner("/");
            for (Record record : batch) {
                record.ensureValid();
                StringJoiner headers = new StringJoiner(";");
                for (Header header : record.headers())
                    headers.add(HEX.formatHex(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)) + "=" + hex(header.value()));
                records.add(record.offset() + "," + record.timestamp() + "," + hex(record.hasKey() ? record.key() : null) + ","
                    + hex(record.hasValue() ? record.value() : null) + "," + headers);
            }
            batches.add(batch.magic() + ":" + batch.baseOffset() + ":" + batch.lastOffset() + ":" + batch.compressionType().id + ":"
                + (batch.timestampType() == TimestampType.LOG_APPEND_TIME) + ":" + batch.maxTimestamp() + ":" + batch.producerId() + ":"
                + batch.producerEpoch() + ":" + batch.baseSequence() + ":" + batch.lastSequence() + ":" + batch.isTransactional() + ":"
                + batch.isControlBatch() + ":" + batch.partitionLeaderEpoch() + ":" + records);
        }
        return batches.toString();
    }

    static String write(String[] words) {
        TimestampType type = words[3].equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), Byte.parseByte(words[1]),
            Compression.of(CompressionType.forId(Integer.parseInt(words[2]))).build(), type, Long.parseLong(words[4]), 1234567890123L,
            Long.parseLong(words[5]), Short.parseShort(words[6]), Integer.parseInt(words[7]), Boolean.parseBoolean(words[8]), false,
            Integer.parseInt(words[9]));
        for (int i = 10; i < words.length; i++) {
            String[] fields = words[i].split(",", -1);
            String[] pairs = fields[4].isEmpty() ? new String[0] : fields[4].split(";");
            Header[] headers = new Header[pairs.length];
            for (int j = 0; j < pairs.length; j++)
                headers[j] = new RecordHeader(new String(bytes(pairs[j].split("=", -1)[0]), java.nio.charset.StandardCharsets.UTF_8),
                    bytes(pairs[j].split("=", -1)[1]));
            builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]), headers);
        }
        return hex(builder.build().buffer());
    }

    static String marker(String[] words) {
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(Long.parseLong(words[6]), Long.parseLong(words[5]), -1,
            Long.parseLong(words[2]), Short.parseShort(words[3]),
            new EndTransactionMarker(ControlRecordType.valueOf(words[1]), Integer.parseInt(words[4])));
        return hex(records.buffer());
    }

    static byte[] bytes(String text) {
        return text.equals("~") ? null : HEX.parseHex(text);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "~" : HEX.formatHex(bytes);
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "~";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
