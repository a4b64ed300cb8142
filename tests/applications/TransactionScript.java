// Kafka's transactional producers, step by step.
//
// The first argument is the bootstrap server, the others are steps, words of which are divided by
// commas.  Each names a producer by its transactional id: "ID,start" makes it, "ID,begin",
// "ID,send,TOPIC,PARTITION,VALUE" (waits for the acknowledgement), "ID,commit" and "ID,abort" do
// what they say; "ID,start" once more makes a second producer of the same id, called "ID" from then
// on, and "ID,old" goes back to the first.  Prints each step with "done" or the class of its
// exception.  Transactions that are open at the end stay open.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionScript {
    private static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private static final Map<String, KafkaProducer<String, String>> older = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int number = 1; number < arguments.length; number++) {
            String outcome = "done";
            try {
                carryOut(arguments[0], arguments[number].split(","));
            } catch (ExecutionException error) {
                outcome = error.getCause().getClass().getSimpleName();
            } catch (Exception error) {
                outcome = error.getClass().getSimpleName();
            }
            System.out.println(arguments[number] + " " + outcome);
        }
    }

    private static void carryOut(String bootstrap, String[] words) throws Exception {
        String id = words[0];
        KafkaProducer<String, String> producer = producers.get(id);
        switch (words[1]) {
            case "start":
                if (producer != null) {
                    older.put(id, producer);
                }
                producers.put(id, started(bootstrap, id));
                break;
            case "old":
                producers.put(id, older.get(id));
                break;
            case "begin":
                producer.beginTransaction();
                break;
            case "send":
                int partition = Integer.parseInt(words[3]);
                producer.send(new ProducerRecord<>(words[2], partition, null, words[4])).get();
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static KafkaProducer<String, String> started(String bootstrap, String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("linger.ms", 0);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }
}
