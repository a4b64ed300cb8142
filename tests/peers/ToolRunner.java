// Runs the main methods of Kafka's tools one after the other in one JVM, because starting a JVM
// costs more than what a tool does.
//
// In, for each run: the class, what it reads from System.in, its arguments; out: its exit code,
// what it printed to System.out and to System.err.  Strings are a length and UTF-8, as bytes.
// A tool that asks to exit has said everything: what it prints about not having ended is let go.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
    private static final long SECONDS_MAX = 60;
    private static final int TOOK_TOO_LONG = 124;

    /** What a tool prints goes to the run that is going on, even through streams it kept. */
    private static final class Switched extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int b) {
            target.write(b);
        }

        @Override
        public void write(byte[] b, int off, int len) {
            target.write(b, off, len);
        }
    }

    private static final class Exited extends Error {
    }

    private static final int NOT_ASKED = -1;
    private static volatile int asked = NOT_ASKED;
    private static final Switched out = new Switched();
    private static final Switched err = new Switched();
    private static ByteArrayOutputStream said;
    private static ByteArrayOutputStream complained;

    private static void exit(int code, String message) {
        if (asked == NOT_ASKED) {
            if (message != null) {
                System.err.println(message);
            }
            asked = code;
            out.target = new ByteArrayOutputStream();
            err.target = new ByteArrayOutputStream();
        }
        throw new Exited();
    }

    public static void main(String[] ignored) throws Exception {
        org.slf4j.LoggerFactory.getILoggerFactory(); // which complains once that there is none
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
        Exit.setExitProcedure(ToolRunner::exit);
        Exit.setHaltProcedure(ToolRunner::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        while (true) {
            String tool;
            try {
                tool = readString(in);
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            System.setIn(new ByteArrayInputStream(readBytes(in)));
            String[] arguments = new String[in.readInt()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = readString(in);
            }
            out.target = said = new ByteArrayOutputStream();
            err.target = complained = new ByteArrayOutputStream();
            asked = NOT_ASKED;
            int ended = run(tool, arguments, hooks);
            answers.writeInt(asked == NOT_ASKED ? ended : asked);
            writeBytes(answers, said.toByteArray());
            writeBytes(answers, complained.toByteArray());
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments, List<Runnable> hooks) throws Exception {
        int[] code = {TOOK_TOO_LONG};
        Thread thread = new Thread(() -> {
            int ended = call(tool, arguments);
            synchronized (hooks) {
                hooks.forEach(Runnable::run);
                hooks.clear();
            }
            code[0] = ended;
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(SECONDS_MAX * 1000);
        if (thread.isAlive()) {
            for (StackTraceElement line : thread.getStackTrace()) {
                System.err.println("    at " + line);
            }
        }
        return code[0];
    }

    private static int call(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                error.getCause().printStackTrace();
            }
            return 1;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
    }

    private static String readString(DataInputStream in) throws Exception {
        return new String(readBytes(in), StandardCharsets.UTF_8);
    }

    private static byte[] readBytes(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws Exception {
        out.writeInt(bytes.length);
        out.write(bytes);
    }
}
