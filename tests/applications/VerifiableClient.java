// The main methods of Kafka's verifiable producer and consumer, but for their shutdown hooks, which
// belong to the JVM there and to the application here.
//
// Arguments: producer or consumer, then those of the tool.

import java.lang.reflect.Method;
import java.util.Arrays;
import net.sourceforge.argparse4j.inf.ArgumentParser;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.server.util.ThroughputThrottler;
import org.apache.kafka.tools.VerifiableConsumer;
import org.apache.kafka.tools.VerifiableProducer;

public class VerifiableClient {
    public static void main(String[] arguments) throws Exception {
        String[] own = Arrays.copyOfRange(arguments, 1, arguments.length);
        if (arguments[0].equals("producer")) {
            VerifiableProducer producer =
                VerifiableProducer.createFromArgs(parser(VerifiableProducer.class), own);
            Exit.addShutdownHook("stop", producer::close);
            producer.run(new ThroughputThrottler(-1, System.currentTimeMillis()));
        } else {
            VerifiableConsumer consumer =
                VerifiableConsumer.createFromArgs(parser(VerifiableConsumer.class), own);
            Exit.addShutdownHook("stop", consumer::close);
            consumer.run();
        }
    }

    private static ArgumentParser parser(Class<?> tool) throws Exception {
        Method method = tool.getDeclaredMethod("argParser");
        method.setAccessible(true);
        return (ArgumentParser) method.invoke(null);
    }
}
