import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** One step of a log a line; answers what the step gave, and the log after it. */
public class Logs {
    /** Stands still until a step moves it. */
    static class Clock implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    /** What is to be done later never is. */
    static class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() {
            super(() -> null);
        }

        public long getDelay(TimeUnit unit) {
            return 0;
        }

        public int compareTo(Delayed other) {
            return 0;
        }
    }

    /** What is to be done once and at once is done; nothing else is. */
    static class AtOnce implements Scheduler {
        public void startup() {
        }

        public void shutdown() {
        }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0 && delayMs == 0) {
                task.run();
            }
            return new Never();
        }

        public void resizeThreadPool(int newSize) {
        }
    }

    static final Clock CLOCK = new Clock();
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    static final Map<Integer, VerificationGuard> GUARDS = new HashMap<>();
    static UnifiedLog log;

    static void open(JsonNode step) throws Exception {
        Properties settings = new Properties();
        step.get("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        log = UnifiedLog.create(new File(step.get("folder").asText()), new LogConfig(settings), 0,
            step.get("recovery").asLong(), new AtOnce(), STATS, CLOCK, 900_000,
            new ProducerStateManagerConfig(step.get("expiration").asInt(), true), 600_000, new LogDirFailureChannel(1),
            step.get("clean").asBoolean(), Optional.empty());
    }

    static String append(JsonNode step) {
        MemoryRecords records = records(step);
        LogAppendInfo info;
        if (step.has("origin")) {
            int guard = step.get("guard").asInt();
            info = log.appendAsLeader(records, step.get("epoch").asInt(), AppendOrigin.valueOf(step.get("origin").asText()),
                RequestLocal.noCaching(), guard < 0 ? VerificationGuard.SENTINEL : GUARDS.get(guard),
                (short) step.get("version").asInt());
        } else {
            info = log.appendAsFollower(records, step.get("epoch").asInt());
        }
        return info.firstOffset() + "-" + info.lastOffset();
    }

    static MemoryRecords records(JsonNode step) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(step.get("data").asText())));
    }

    static String verify(JsonNode step) {
        VerificationGuard guard = log.maybeStartTransactionVerification(step.get("producer").asLong(), step.get("sequence").asInt(),
            (short) step.get("epoch").asInt(), step.get("adds").asBoolean());
        GUARDS.put(step.get("guard").asInt(), guard);
        return guard == VerificationGuard.SENTINEL ? "open" : "asked";
    }

    static String clean(JsonNode step) throws Exception {
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9,
            new Throttler(1e12, 1000, "cleaner", "bytes", CLOCK), CLOCK, any -> { });
        LogToClean section = new LogToClean(log, step.get("dirty").asLong(), step.get("end").asLong(), false);
        return "" + cleaner.doClean(section, CLOCK.now).getKey();
    }

    static String done(JsonNode step) throws Exception {
        CLOCK.now = step.get("now").asLong();
        switch (step.get("op").asText()) {
            case "open": open(step); return "";
            case "append": return append(step);
            case "verify": return verify(step);
            case "clean": return clean(step);
            case "roll": log.roll(); return "";
            case "high watermark": log.updateHighWatermark(step.get("offset").asLong()); return "";
            case "truncate":
                log.truncateTo(step.get("offset").asLong());
                log.updateHighWatermark(log.highWatermark());  // as the next fetch does: markers below it are known again
                return "";
            case "epoch": log.assignEpochStartOffset(step.get("epoch").asInt(), log.logEndOffset()); return "";
            case "close": log.close(); return "";
            case "kill": log.closeHandlers(); return "";
            default: throw new IllegalArgumentException(step.toString());
        }
    }

    static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return "-";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    static String batch(RecordBatch batch) {
        List<String> records = new ArrayList<>();
        for (Record each : batch) {
            records.add(each.offset() + ":" + each.timestamp() + ":" + text(each.key()) + ":" + text(each.value()));
        }
        return String.join(" ", "" + batch.baseOffset(), "" + batch.lastOffset(), "" + batch.partitionLeaderEpoch(),
            "" + batch.producerId(), "" + batch.producerEpoch(), "" + batch.baseSequence(), "" + batch.isTransactional(),
            "" + batch.isControlBatch(), "" + batch.maxTimestamp(), "" + batch.deleteHorizonMs().orElse(-1), String.join(",", records));
    }

    static Map<String, Object> state() throws Exception {
        Map<String, Object> found = new HashMap<>();
        found.put("end", log.logEndOffset());
        found.put("start", log.logStartOffset());
        found.put("high watermark", log.highWatermark());
        found.put("last stable", log.lastStableOffset());
        List<String> producers = new ArrayList<>();
        log.activeProducers().stream().sorted(Comparator.comparingLong(each -> each.producerId())).forEach(each ->
            producers.add(each.producerId() + " " + each.producerEpoch() + " " + each.lastSequence() + " " + each.lastTimestamp() + " "
                + each.coordinatorEpoch() + " " + each.currentTxnStartOffset()));
        found.put("producers", producers);
        List<String> aborted = new ArrayList<>();
        log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()).forEach(each ->
            aborted.add(each.producerId() + " " + each.firstOffset() + " " + each.lastOffset() + " " + each.lastStableOffset()));
        found.put("aborted", aborted);
        List<String> epochs = new ArrayList<>();
        log.leaderEpochCache().epochEntries().forEach(each -> epochs.add(each.epoch() + " " + each.startOffset()));
        found.put("epochs", epochs);
        List<String> batches = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segment.log().batches().forEach(each -> batches.add(batch(each)));
        }
        found.put("batches", batches);
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode step = mapper.readTree(line);
            String answer;
            try {
                answer = done(step);
            } catch (Throwable error) {
                answer = Errors.forException(error).name();
                if (answer.equals("UNKNOWN_SERVER_ERROR")) {
                    answer += " " + error;
                }
            }
            Map<String, Object> found = new HashMap<>();
            found.put("answer", answer);
            String op = step.get("op").asText();
            if (!op.equals("close") && !op.equals("kill")) {
                found.putAll(state());
            }
            answers.append(mapper.writeValueAsString(found)).append('\n');
        }
        System.out.print(answers);
        System.exit(0);
    }
}
