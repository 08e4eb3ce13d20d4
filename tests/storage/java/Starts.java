import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import kafka.log.LogManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LazyOffsetCheckpoints;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Starts of a log directory: one folder a line; answers what each topic's log holds after Kafka's LogManager has loaded it. */
public class Starts {
    static final Clock CLOCK = new Clock();
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    static final int NEVER_EXPIRE_MS = 1 << 30;

    /** Stands still. */
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

    /** What is to be done once and at once is done; nothing else is. */
    static Scheduler scheduler() {
        return (Scheduler) Proxy.newProxyInstance(Starts.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (self, method, given) -> {
            if (method.getName().startsWith("schedule") && given.length > 2 && (long) given[2] == 0 && (given.length < 4 || (long) given[3] < 0)) {
                ((Runnable) given[1]).run();
            }
            return Proxy.newProxyInstance(Starts.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (task, asked, nothing) -> false);
        });
    }

    static Properties properties(JsonNode settings) {
        Properties found = new Properties();
        settings.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static Map<String, Object> started(JsonNode step) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        File folder = new File(step.get("folder").asText());
        JsonNode topics = step.get("topics");
        CLOCK.now = step.get("now").asLong();
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        LogConfig defaults = new LogConfig(properties(step.get("defaults")));
        LogManager logs = new LogManager(CollectionConverters.asScala(List.of(folder)).toSeq(), CollectionConverters.asScala(List.<File>of()).toSeq(),
            resource -> topics.has(resource.name()) ? properties(topics.get(resource.name()).get("config")) : new Properties(), defaults,
            new CleanerConfig(false), 1, 1000, 1000, 1000, 1000, 900_000, new ProducerStateManagerConfig(NEVER_EXPIRE_MS, false), 600_000, scheduler(),
            STATS, failures, CLOCK, false, 0, LogManager.$lessinit$greater$default$20());
        try {
            Set<String> names = new HashSet<>();
            Set<Uuid> ids = new HashSet<>();
            topics.fields().forEachRemaining(each -> {
                names.add(each.getKey());
                ids.add(Uuid.fromString(each.getValue().get("id").asText()));
            });
            logs.startup(CollectionConverters.asScala(names), log -> log.topicId().isEmpty() || !ids.contains(log.topicId().get()));
            if (failures.hasOfflineLogDir(folder.getAbsolutePath())) {
                found.put("refused", "the log directory is offline");
                return found;
            }
            var checkpoints = new LazyOffsetCheckpoints(
                Map.of(folder.getAbsolutePath(), new OffsetCheckpointFile(new File(folder, "replication-offset-checkpoint"), failures)));
            var cleaned = new LogCleanerManager(List.of(folder), new ConcurrentHashMap<>(), failures);
            Map<String, Object> states = new TreeMap<>();
            for (String name : names) {
                states.put(name, state(logs, checkpoints, cleaned, new TopicPartition(name, 0), topics.get(name)));
            }
            if (failures.hasOfflineLogDir(folder.getAbsolutePath())) {
                found.put("refused", "the log directory is offline: " + states);
            } else {
                found.put("topics", states);
            }
        } catch (Throwable error) {
            found.put("refused", text(error));
        } finally {
            CollectionConverters.asJava(logs.allLogs()).forEach(UnifiedLog::closeHandlers);
            for (FileLock each : CollectionConverters.asJava(logs.dirLocks())) {
                each.destroy();
            }
        }
        return found;
    }

    static String text(Throwable error) {
        StringBuilder found = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            found.append(found.isEmpty() ? "" : " <- ").append(each);
        }
        return found.toString();
    }

    static Map<String, Object> state(LogManager logs, LazyOffsetCheckpoints checkpoints, LogCleanerManager cleaned, TopicPartition name, JsonNode topic) {
        Map<String, Object> found = new HashMap<>();
        try {
            UnifiedLog log = logs.getOrCreateLog(name, false, false, Optional.of(Uuid.fromString(topic.get("id").asText())), Option.empty());
            log.updateHighWatermark(checkpoints.fetch(log.parentDir(), name).orElse(0L));  // as kafka.cluster.Partition does
            found.put("start", log.logStartOffset());
            found.put("end", log.logEndOffset());
            found.put("high watermark", log.highWatermark());
            found.put("last stable", log.lastStableOffset());
            List<String> aborted = new ArrayList<>();
            log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()).forEach(each ->
                aborted.add(each.producerId() + " " + each.firstOffset() + " " + each.lastOffset()));
            found.put("aborted", aborted);
            List<String> batches = new ArrayList<>();
            log.logSegments().forEach(segment -> segment.log().batches().forEach(each ->
                batches.add(each.baseOffset() + " " + each.lastOffset() + " " + each.checksum())));
            found.put("batches", batches);
            cleaned.allCleanerCheckpoints();  // or a damaged file takes the directory offline later
        } catch (Throwable error) {
            found.clear();
            found.put("refused", text(error));
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        try {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                answers.append(mapper.writeValueAsString(started(mapper.readTree(line)))).append('\n');
            }
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);  // other threads would go on
        }
        System.out.print(answers);
        System.exit(0);
    }
}
