/*
 * The requests of an idempotent producer of one topic, and their responses.
 *
 * Owns: the bytes of Produce (v13, acks=all), of InitProducerId (v0), and of the headers of record
 * batches (format 2); the producer id and epoch.
 * Must not know: when pieces are sent, nor what becomes of those that a broker refuses; Spark.
 */
package sparklog.dataframe;

final class ProduceRequests {
  private static final int PRODUCE = 0;
  private static final int PRODUCE_VERSION = 13;
  private static final int INIT_PRODUCER_ID = 22;
  private static final int INIT_PRODUCER_ID_VERSION = 0;
  /** Bytes of a request before its partitions, and of each partition beside its batch, at most. */
  private static final int REQUEST_OVERHEAD = 64;
  private static final int PARTITION_OVERHEAD = 16;
  final long topicIdHigh;
  final long topicIdLow;
  /** The timeout that requests state, in milliseconds. */
  private final int timeoutMs;
  private final java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
  long producerId;
  short producerEpoch;

  ProduceRequests(long topicIdHigh, long topicIdLow, int timeoutMs) {
    this.topicIdHigh = topicIdHigh;
    this.topicIdLow = topicIdLow;
    this.timeoutMs = timeoutMs;
  }

  /** Asks for a producer id (InitProducerId, without a transactional id). */
  void initProducerId(BrokerConnection connection) throws java.io.IOException {
    java.nio.ByteBuffer to =
        connection.request(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, false, 6);
    to.putShort((short) -1);
    to.putInt(timeoutMs);
    java.nio.ByteBuffer response = connection.sendAndReceive();
    if (response.remaining() != 16) throw new java.io.IOException("InitProducerId: no answer");
    response.getInt();
    short error = response.getShort();
    if (error != 0) throw new java.io.IOException("InitProducerId: error " + error);
    producerId = response.getLong();
    producerEpoch = response.getShort();
    if (producerId < 0L) throw new java.io.IOException("InitProducerId: no id");
  }

  /** Sends a Produce request with acks=all. */
  void send(BrokerConnection connection, SentRequest request) throws java.io.IOException {
    SentPiece[] pieces = request.pieces;
    int bytes = REQUEST_OVERHEAD + (Constants.BATCH_OVERHEAD + PARTITION_OVERHEAD) * pieces.length;
    java.nio.ByteBuffer to = connection.request(PRODUCE, PRODUCE_VERSION, true, bytes);
    request.correlationId = connection.correlationId();
    to.put((byte) 0);
    to.putShort((short) -1);
    to.putInt(timeoutMs);
    to.put((byte) 2);
    to.putLong(topicIdHigh);
    to.putLong(topicIdLow);
    Wire.putUvarint(to, pieces.length + 1);
    long now = System.nanoTime();
    for (int i = 0; i < pieces.length; i++) {
      if (!pieces[i].isSent) pieces[i].sentNs = now;
      pieces[i].isSent = true;
      putBatch(to, pieces[i]);
      connection.insert(pieces[i].records, pieces[i].end);
      // No tagged fields of the partition.
      to.put((byte) 0);
    }
    // No tagged fields of the topic, and none of the request.
    to.putShort((short) 0);
    connection.send();
  }

  /** Writes a partition and the header of its batch, up to the records. */
  private void putBatch(java.nio.ByteBuffer to, SentPiece piece) {
    to.putInt(piece.partition);
    Wire.putUvarint(to, Constants.BATCH_OVERHEAD + piece.end + 1);
    to.putLong(0L);
    to.putInt(Constants.BATCH_OVERHEAD - Constants.LOG_OVERHEAD + piece.end);
    to.putInt(-1);
    to.put((byte) 2);
    to.putInt(0);
    int crcStart = to.position();
    to.putShort((short) 0);
    to.putInt(piece.recordCount - 1);
    to.putLong(piece.baseTimestamp);
    to.putLong(piece.maxTimestamp);
    to.putLong(producerId);
    to.putShort(producerEpoch);
    to.putInt(piece.baseSequence);
    to.putInt(piece.recordCount);
    crc.reset();
    crc.update(to.array(), crcStart, to.position() - crcStart);
    crc.update(piece.records, 0, piece.end);
    to.putInt(crcStart - 4, (int) crc.getValue());
  }

  /** Waits for the response, which has to tell the error code of each piece exactly once. */
  void receive(BrokerConnection connection, SentRequest request) throws java.io.IOException {
    int count = request.pieces.length;
    boolean[] seen = new boolean[count];
    java.nio.ByteBuffer response = connection.receive(request.correlationId);
    try {
      Wire.skipTags(response);
      boolean expected = Wire.count(response) == 1;
      expected &= response.getLong() == topicIdHigh;
      expected &= response.getLong() == topicIdLow;
      expected &= Wire.count(response) == count;
      if (!expected) throw new java.io.IOException("an answer to something else");
      for (int i = 0; i < count; i++) {
        if (i > 0) skipDetails(response);
        int index = request.indexOf(response.getInt(), i);
        if (seen[index]) throw new java.io.IOException("an answer that tells a partition twice");
        seen[index] = true;
        request.pieces[index].errorCode = response.getShort();
      }
    } catch (RuntimeException error) {
      throw Wire.malformed(error);
    }
  }

  /** Skips what follows a partition's error code: offsets, a time, record errors, a message. */
  private static void skipDetails(java.nio.ByteBuffer response) {
    Wire.skip(response, 3 * 8);
    int records = Wire.count(response);
    for (int i = 0; i < records; i++) {
      Wire.skip(response, 4);
      Wire.text(response);
      Wire.skipTags(response);
    }
    Wire.text(response);
    Wire.skipTags(response);
  }
}
