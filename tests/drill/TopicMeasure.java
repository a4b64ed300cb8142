// Reads a topic from its beginning to the end that it has now, with Kafka's consumer, and prints for
// each partition: partition, records, sum of the CRC-32 of the values, sum with the weights.
//
// Arguments: bootstrap servers, topic, partitions; weights are offsets modulo the last argument.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class TopicMeasure {
    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[2]);
        int weights = Integer.parseInt(arguments[3]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "enable.auto.commit", "false", "max.poll.records", 5000);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> all = new ArrayList<>();
            for (int number = 0; number < partitions; number++) {
                all.add(new TopicPartition(arguments[1], number));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all, Duration.ofSeconds(60));
            long[] counts = new long[partitions];
            long[] checksums = new long[partitions];
            long[] weighted = new long[partitions];
            long left = ends.values().stream().mapToLong(Long::longValue).sum();
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    int partition = record.partition();
                    if (record.offset() != counts[partition]) {
                        throw new IllegalStateException(
                            record.topic() + "-" + partition + ": offset " + record.offset()
                                + " follows " + (counts[partition] - 1));
                    }
                    CRC32 checksum = new CRC32();
                    checksum.update(record.value());
                    checksums[partition] += checksum.getValue();
                    weighted[partition] += checksum.getValue() * (counts[partition]++ % weights);
                    left--;
                }
            }
            for (int number = 0; number < partitions; number++) {
                System.out.println(
                    number + " " + counts[number] + " " + checksums[number] + " " + weighted[number]);
            }
        }
    }
}
