import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka demands of a producer's batch. Reads lines
 *   NOW BEFORE AFTER COMPACTED APPENDTIME CODEC(-1: the producer's) HEX
 * and answers "ok HEX" (offsets from 1000, leader epoch 7), or "CODE [index,index...]".
 */
public class Validate {
    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                ByteBuffer result = validate(words, hex.parseHex(words[6])).buffer();
                byte[] bytes = new byte[result.remaining()];
                result.duplicate().get(bytes);
                System.out.println("ok " + hex.formatHex(bytes));
            } catch (RecordValidationException error) {
                System.out.println(Errors.forException(error.invalidException()).code() + " " + error.recordErrors().stream()
                    .map(each -> Integer.toString(each.batchIndex)).collect(Collectors.joining(",")));
            } catch (Throwable error) {
                System.out.println(Errors.forException(error).code() + "  " + error.toString().replace('\n', ' '));
            }
        }
    }

    static MemoryRecords validate(String[] words, byte[] bytes) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        ProduceRequest.validateRecords((short) 9, records);
        RecordBatch first = records.batches().iterator().next();
        if (first.baseOffset() != 0)
            throw new org.apache.kafka.common.InvalidRecordException("base offset");
        first.ensureValid();
        if (records.sizeInBytes() != first.sizeInBytes())
            records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes, 0, first.sizeInBytes()).slice());
        CompressionType source = first.compressionType();
        int codec = Integer.parseInt(words[5]);
        Compression target = Compression.of(codec < 0 ? source : CompressionType.forId(codec)).build();
        long now = Long.parseLong(words[0]);
        Time time = new FixedTime(now);
        return new LogValidator(records, new TopicPartition("t", 0), time, source, target, Boolean.parseBoolean(words[3]), (byte) 2,
            Boolean.parseBoolean(words[4]) ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME, Long.parseLong(words[1]),
            Long.parseLong(words[2]), 7, AppendOrigin.CLIENT)
            .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(1000), new NoMetrics(), BufferSupplier.NO_CACHING).validatedRecords();
    }

    record FixedTime(long milliseconds) implements Time {
        public long nanoseconds() {
            return milliseconds * 1_000_000;
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, java.util.function.Supplier<Boolean> condition, long deadline) { }

        public <T> T waitForFuture(java.util.concurrent.Future<T> future, long deadline) {
            return null;
        }
    }

    static class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }
}
