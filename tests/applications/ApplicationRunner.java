// Runs the main methods of Kafka's applications, several at the same time, in one JVM.
//
// In: lines "start TAB name TAB class TAB argument ..." and "stop TAB name".  Out: lines
// "name TAB line" for what an application prints, and "name TAB exit TAB code" when it has ended.
// An application owns the threads that its threads start: these inherit where they print.  To stop
// one is to run its shutdown hooks, as SIGTERM does.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

public class ApplicationRunner {
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;
    }

    private static final class Application {
        private final String name;
        private final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        private Integer asked;
        private boolean ended;

        Application(String name) {
            this.name = name;
        }

        void exit(int code) {
            synchronized (this) {
                if (asked == null) {
                    asked = code;
                }
            }
            throw new Exited();
        }

        void stop() {
            hooks.forEach(Runnable::run);
            hooks.clear();
            end(0);
        }

        private synchronized void end(int code) {
            if (!ended) {
                ended = true;
                say(name + "\texit\t" + (asked == null ? code : asked));
            }
        }

        void run(String main, String[] arguments) {
            int code = 0;
            try {
                Class.forName(main).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Exited)) {
                    error.getCause().printStackTrace();
                    code = 1;
                }
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                code = 1;
            }
            if (hooks.isEmpty() || asked != null || code != 0) { // else its threads go on
                end(code);
            }
        }
    }

    /** Whole lines of each thread go to the runner's output, behind the application's name. */
    private static final class Lines extends OutputStream {
        private final Map<String, ByteArrayOutputStream> unfinished = new ConcurrentHashMap<>();

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            Application application = current.get();
            String name = application == null ? "-" : application.name;
            ByteArrayOutputStream line =
                unfinished.computeIfAbsent(name, ignored -> new ByteArrayOutputStream());
            for (int i = offset; i < offset + length; i++) {
                if (bytes[i] == '\n') {
                    say(name + "\t" + line.toString(StandardCharsets.UTF_8));
                    line.reset();
                } else {
                    line.write(bytes[i]);
                }
            }
        }
    }

    private static final InheritableThreadLocal<Application> current =
        new InheritableThreadLocal<>();
    private static final Map<String, Application> applications = new ConcurrentHashMap<>();
    private static final PrintStream answers = System.out;

    private static void say(String line) {
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }

    private static void exit(int code, String message) {
        if (message != null) {
            System.err.println(message);
        }
        current.get().exit(code);
    }

    public static void main(String[] ignored) throws Exception {
        org.slf4j.LoggerFactory.getILoggerFactory(); // which complains once that there is none
        System.setOut(new PrintStream(new Lines(), true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(ApplicationRunner::exit);
        Exit.setHaltProcedure(ApplicationRunner::exit);
        Exit.setShutdownHookAdder((name, hook) -> current.get().hooks.add(hook));
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = orders.readLine()) != null) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("start")) {
                Application application = new Application(words[1]);
                applications.put(words[1], application);
                String[] arguments = Arrays.copyOfRange(words, 3, words.length);
                as(application, () -> application.run(words[2], arguments));
            } else {
                Application application = applications.get(words[1]);
                as(application, application::stop);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void as(Application application, Runnable work) {
        Thread thread = new Thread(() -> {
            current.set(application);
            work.run();
        });
        thread.setDaemon(true);
        thread.start();
    }
}
