// A member of a group that consumes, transforms and produces in transactions, as Kafka's
// TransactionalMessageCopier does in its system tests.
//
// Arguments: bootstrap server, group, topic to read, topic to write, transactional id.  For each
// record it writes "partition/offset".  Prints "started", and "committed" or "aborted" with the
// number of records for each transaction.

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

public class TransactionalCopier {
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String target;
    private volatile boolean over;

    private TransactionalCopier(String bootstrap, String group, String target, String id) {
        Map<String, Object> reading = new HashMap<>();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", group);
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", false);
        reading.put("session.timeout.ms", 3000);
        reading.put("heartbeat.interval.ms", 300);
        reading.put("max.poll.records", 20);
        Map<String, Object> writing = new HashMap<>();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("transactional.id", id);
        consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        this.target = target;
    }

    public static void main(String[] arguments) {
        TransactionalCopier copier =
            new TransactionalCopier(arguments[0], arguments[1], arguments[3], arguments[4]);
        Thread working = Thread.currentThread();
        Exit.addShutdownHook("stop", () -> {
            copier.over = true;
            try {
                working.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        });
        copier.producer.initTransactions();
        copier.consumer.subscribe(List.of(arguments[2]));
        System.out.println("started");
        while (!copier.over) {
            copier.copy();
        }
        copier.producer.close();
        copier.consumer.close();
    }

    private void copy() {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                String value = record.partition() + "/" + record.offset();
                producer.send(new ProducerRecord<>(target, value));
            }
            producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
            producer.commitTransaction();
            System.out.println("committed " + records.count());
        } catch (ProducerFencedException error) {
            throw error;
        } catch (KafkaException error) {
            producer.abortTransaction();
            goBack();
            System.out.println("aborted " + records.count() + " " + error);
        }
    }

    private void goBack() {
        Set<TopicPartition> assigned = new HashSet<>(consumer.assignment());
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        for (TopicPartition partition : assigned) {
            OffsetAndMetadata position = committed.get(partition);
            if (position == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, position.offset());
            }
        }
    }
}
