"""Produce requests that leave the JVM, and their answers.

Owns: the Java of their bytes (Produce v13, InitProducerId v0, headers of batches of format 2).
Must not know when pieces are sent, nor what becomes of those that a broker refuses.
"""

from typing import Final

from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.wire.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD

#: Of a request before its partitions, and of each beside its batch.
REQUEST_OVERHEAD: Final = 64
PARTITION_OVERHEAD: Final = 16

_JAVA: Final = r"""
final class SentPiece {
  byte[] records;
  int end;
  int count;
  long base;
  long latest;
  int partition;
  int sequence;
  /** Of its last answer. */
  int error;
  /** When it was first, by System.nanoTime, if it was. */
  boolean isSent;
  long sent;
}

/** Pieces of different partitions. */
final class SentRequest {
  final SentPiece[] pieces;
  int correlation;

  SentRequest(java.util.Collection pieces) {
    this.pieces = (SentPiece[]) pieces.toArray(new SentPiece[0]);
  }

  /** Of that partition's piece; answers have the same order, as a rule. */
  int placeOf(int partition, int usual) throws java.io.IOException {
    if (pieces[usual].partition == partition) return usual;
    for (int i = 0; i < pieces.length; i++) if (pieces[i].partition == partition) return i;
    throw new java.io.IOException("an answer to something else");
  }
}

/** An idempotent one, of one topic. */
final class Producer {
  final long topicIdHigh;
  final long topicIdLow;
  /** In milliseconds, for its requests. */
  private final int timeout;
  private final java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
  long id;
  short epoch;

  Producer(long topicIdHigh, long topicIdLow, int timeout) {
    this.topicIdHigh = topicIdHigh;
    this.topicIdLow = topicIdLow;
    this.timeout = timeout;
  }

  /** InitProducerId v0, without a transactional id. */
  void identify(BrokerConnection connection) throws java.io.IOException {
    java.nio.ByteBuffer to = connection.request(22, 0, false, 6);
    to.putShort((short) -1);
    to.putInt(timeout);
    java.nio.ByteBuffer answer = connection.ask();
    if (answer.remaining() != 16) throw new java.io.IOException("InitProducerId: no answer");
    answer.getInt();
    short error = answer.getShort();
    if (error != 0) throw new java.io.IOException("InitProducerId: error " + error);
    id = answer.getLong();
    epoch = answer.getShort();
    if (id < 0L) throw new java.io.IOException("InitProducerId: no id");
  }

  /** Produce v13, acks=all. */
  void send(BrokerConnection connection, SentRequest request) throws java.io.IOException {
    SentPiece[] pieces = request.pieces;
    int room = REQUEST_OVERHEAD + (BATCH_OVERHEAD + PARTITION_OVERHEAD) * pieces.length;
    java.nio.ByteBuffer to = connection.request(0, 13, true, room);
    request.correlation = connection.correlation();
    to.put((byte) 0);
    to.putShort((short) -1);
    to.putInt(timeout);
    to.put((byte) 2);
    to.putLong(topicIdHigh);
    to.putLong(topicIdLow);
    Wire.putUvarint(to, pieces.length + 1);
    long now = System.nanoTime();
    for (int i = 0; i < pieces.length; i++) {
      if (!pieces[i].isSent) pieces[i].sent = now;
      pieces[i].isSent = true;
      putBatch(to, pieces[i]);
      connection.insert(pieces[i].records, pieces[i].end);
      // No tags: of the partition.
      to.put((byte) 0);
    }
    // No tags: of the topic, of the request.
    to.putShort((short) 0);
    connection.send();
  }

  /** A partition and its batch, up to the records. */
  private void putBatch(java.nio.ByteBuffer to, SentPiece piece) {
    to.putInt(piece.partition);
    Wire.putUvarint(to, BATCH_OVERHEAD + piece.end + 1);
    to.putLong(0L);
    to.putInt(BATCH_OVERHEAD - LOG_OVERHEAD + piece.end);
    to.putInt(-1);
    to.put((byte) 2);
    to.putInt(0);
    int checked = to.position();
    to.putShort((short) 0);
    to.putInt(piece.count - 1);
    to.putLong(piece.base);
    to.putLong(piece.latest);
    to.putLong(id);
    to.putShort(epoch);
    to.putInt(piece.sequence);
    to.putInt(piece.count);
    crc.reset();
    crc.update(to.array(), checked, to.position() - checked);
    crc.update(piece.records, 0, piece.end);
    to.putInt(checked - 4, (int) crc.getValue());
  }

  /** Waits for the answer, which has to tell the error of each piece, once. */
  void receive(BrokerConnection connection, SentRequest request) throws java.io.IOException {
    int count = request.pieces.length;
    boolean[] told = new boolean[count];
    java.nio.ByteBuffer answer = connection.receive(request.correlation);
    try {
      Wire.skipTags(answer);
      boolean expected = Wire.count(answer) == 1;
      expected &= answer.getLong() == topicIdHigh;
      expected &= answer.getLong() == topicIdLow;
      expected &= Wire.count(answer) == count;
      if (!expected) throw new java.io.IOException("an answer to something else");
      for (int i = 0; i < count; i++) {
        if (i > 0) skipDetails(answer);
        int place = request.placeOf(answer.getInt(), i);
        if (told[place]) throw new java.io.IOException("an answer that tells a partition twice");
        told[place] = true;
        request.pieces[place].error = answer.getShort();
      }
    } catch (RuntimeException error) {
      throw Wire.malformed(error);
    }
  }

  /** What follows the error of a partition: offsets and a time, refused records, a message. */
  private static void skipDetails(java.nio.ByteBuffer answer) {
    Wire.skip(answer, 3 * 8);
    int records = Wire.count(answer);
    for (int i = 0; i < records; i++) {
      Wire.skip(answer, 4);
      Wire.text(answer);
      Wire.skipTags(answer);
    }
    Wire.text(answer);
    Wire.skipTags(answer);
  }
}
"""


def produce_requests_java() -> str:
    """The classes ``Producer``, ``SentRequest`` and ``SentPiece``, for inside others."""
    named = {
        "REQUEST_OVERHEAD": str(REQUEST_OVERHEAD),
        "PARTITION_OVERHEAD": str(PARTITION_OVERHEAD),
        "BATCH_OVERHEAD": str(BATCH_OVERHEAD),
        "LOG_OVERHEAD": str(LOG_OVERHEAD),
    }
    return filled(_JAVA, named)
