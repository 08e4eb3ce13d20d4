import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's own tools, many in one JVM and several at a time.
 *
 * A line in: NUMBER MAIN-CLASS STANDARD-INPUT ARGUMENT..., where input and arguments are base64 of UTF-8, "-" for nothing.
 * A line out, when the tool has ended: NUMBER EXIT-CODE OUTPUT ERRORS, the last two in base64. What a tool leaves to a
 * shutdown hook is done when its main method returns.
 */
public class Tools {
    /** What one run of a tool reads and writes; the threads that it starts inherit it. */
    static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream errors = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        final InputStream in;
        /** What the tool first said to Exit; null while it did not. */
        Integer code;
        /** The tool's own thread from Exit until the shutdown hooks: in a JVM of its own it would say nothing any more. */
        volatile Thread muted;

        Run(byte[] input) {
            in = new ByteArrayInputStream(input);
        }
    }

    /** Ends the tool's thread. A tool that catches it and says Exit again changes nothing any more, as in its own JVM. */
    static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    static final InheritableThreadLocal<Run> CURRENT = new InheritableThreadLocal<>();

    /** Writes to the run of the thread that writes. */
    static final class Spread extends OutputStream {
        final boolean errors;

        Spread(boolean errors) {
            this.errors = errors;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            Run run = CURRENT.get();
            if (run != null && Thread.currentThread() != run.muted) {
                (errors ? run.errors : run.out).write(bytes, from, length);
            }
        }
    }

    static final class Joined extends InputStream {
        @Override
        public int read() throws IOException {
            Run run = CURRENT.get();
            return run == null ? -1 : run.in.read();
        }

        @Override
        public int read(byte[] bytes, int from, int length) throws IOException {
            Run run = CURRENT.get();
            return run == null ? -1 : run.in.read(bytes, from, length);
        }
    }

    static String text(String encoded) {
        return encoded.equals("-") ? "" : new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    static String encoded(ByteArrayOutputStream stream) {
        return stream.size() == 0 ? "-" : Base64.getEncoder().encodeToString(stream.toByteArray());
    }

    static int call(Run run, String mainClass, String[] arguments) {
        CURRENT.set(run);
        int failure = 0;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace(System.err);
                failure = 70;
            }
        } catch (ReflectiveOperationException e) {
            e.printStackTrace(System.err);
            failure = 71;
        }
        run.muted = null;
        run.hooks.forEach(Runnable::run);
        System.out.flush();
        System.err.flush();
        return run.code != null ? run.code : failure;
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        BufferedReader requests = new BufferedReader(new InputStreamReader(new FileInputStream(FileDescriptor.in)));
        System.setOut(new PrintStream(new Spread(false), true));
        System.setErr(new PrintStream(new Spread(true), true));
        System.setIn(new Joined());
        Exit.Procedure exit = (code, message) -> {
            Run run = CURRENT.get();
            if (run.code == null) {
                if (message != null) {
                    System.err.println(message);
                }
                run.code = code;
                run.muted = Thread.currentThread();
            }
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().hooks.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] parts = line.split(" ");
            Run run = new Run(parts[2].equals("-") ? new byte[0] : Base64.getDecoder().decode(parts[2]));
            String[] arguments = new String[parts.length - 3];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = text(parts[i + 3]);
            }
            new Thread(() -> {
                int code = call(run, parts[1], arguments);
                synchronized (answers) {
                    answers.println(parts[0] + " " + code + " " + encoded(run.out) + " " + encoded(run.errors));
                }
            }, parts[1]).start();
        }
        System.exit(0);
    }
}
