"""Sends a task's pieces from inside the JVM, as long as all goes well.

Owns: the Java of an idempotent producer for the pieces of one task: its batches' headers, what is
in flight, and what it hands over.  Must not know how records are laid out, how bytes travel, nor
what becomes of what it hands over.

It knows one outcome, success.  Whatever else happens (an error code, an answer that is none, a lost
connection, no progress for a while) ends it: who takes over gets its producer id, where each
partition's sequence stands, and the pieces that were not acknowledged, to send them again as they
are.  A broker recognises those that it has after all, and those that arrive late, by their
sequences; for that it has at most one of each partition at a time.  So retries, new leaders, topics
that are not there and records that nobody takes are dealt with in one place, the producer in Python
(``sender``).  Topics are named by their ids (KIP-516): one that was deleted and created again
refuses the next piece.

One thing it does wait for: the leader of a new partition may not have opened it yet.
"""

from typing import Final

from sparklog.dataframe.broker_connection import broker_connection_java
from sparklog.dataframe.jvm_class import filled
from sparklog.dataframe.topic_leaders import topic_leaders_java
from sparklog.errors import ErrorCode
from sparklog.wire.batch import BATCH_OVERHEAD, LOG_OVERHEAD

#: Pieces that a broker has of one task.
PIECES_PER_BROKER: Final = 4
#: For how long leaders may not know yet that they are, and how often they are asked.
OPENING_MS: Final = 2_000
OPENING_PAUSE_MS: Final = 20

#: A leader's words for a partition that it does not have (yet).
_NOT_OPENED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

_JAVA: Final = r"""
final class SentPiece {
  byte[] records;
  int end;
  int count;
  long base;
  long latest;
  int partition;
  int sequence;
  int correlation;
  /** When, by System.nanoTime. */
  long sent;
}

final class PartitionLeader {
  final BrokerConnection connection;
  /** In the order of its answers. */
  final java.util.ArrayDeque inFlight = new java.util.ArrayDeque();
  /** Answered with an error. */
  final java.util.ArrayList refused = new java.util.ArrayList();

  PartitionLeader(BrokerConnection connection) {
    this.connection = connection;
  }

  SentPiece first() {
    return (SentPiece) inFlight.peek();
  }
}

final class PieceSender {
  private final long patience;
  private final long bytesMax;
  private final long opened = System.nanoTime();
  private final java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
  private final java.util.LinkedHashMap leaders = new java.util.LinkedHashMap();
  /** Buffers that nobody uses. */
  private final java.util.ArrayDeque spare = new java.util.ArrayDeque();
  private long topicIdHigh;
  private long topicIdLow;
  private long producerId;
  private short producerEpoch;
  /** By partition: its leader, whether a piece is in flight, and the next sequence. */
  private PartitionLeader[] leaderOf;
  private boolean[] busy;
  private int[] sequences;
  private int turn;
  /** Of the buffers in flight, and of those that nobody uses. */
  private long bytes;
  private long spareBytes;
  /** What is about to be sent. */
  private SentPiece next;
  private long acknowledged;

  /**
   * Connects to the leaders of a topic that is there, and gets a producer id.  The destination is:
   * servers as HOST:PORT,..., topic, client id, patience in milliseconds, and the bytes that
   * buffers may have, unless there is only one.
   */
  PieceSender(String[] destination, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    String client = destination[2];
    patience = Long.parseLong(destination[3]);
    bytesMax = Long.parseLong(destination[4]);
    turn = java.util.concurrent.ThreadLocalRandom.current().nextInt(1 << 16);
    long deadline = opened + patience * 1000000L;
    TopicLeaders found =
        new TopicLeaders(destination[1], destination[0].split(","), client, deadline, task);
    topicIdHigh = found.topicIdHigh;
    topicIdLow = found.topicIdLow;
    leaderOf = new PartitionLeader[found.servers.length];
    busy = new boolean[leaderOf.length];
    sequences = new int[leaderOf.length];
    boolean ready = false;
    try {
      for (int i = 0; i < leaderOf.length; i++)
        leaderOf[i] = leader(found.servers[i], client, deadline, task);
      identify();
      ready = true;
    } finally {
      if (!ready) close();
    }
  }

  private PartitionLeader leader(
      String server, String client, long deadline, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    PartitionLeader found = (PartitionLeader) leaders.get(server);
    if (found == null) {
      found = new PartitionLeader(new BrokerConnection(server, client, deadline, task));
      leaders.put(server, found);
    }
    return found;
  }

  /** InitProducerId v0, without a transactional id. */
  private void identify() throws java.io.IOException {
    BrokerConnection connection = leaderOf[0].connection;
    java.nio.ByteBuffer to = connection.request(22, 0, false, 6);
    to.putShort((short) -1);
    to.putInt((int) patience);
    java.nio.ByteBuffer answer = connection.ask();
    if (answer.remaining() != 16) throw new java.io.IOException("InitProducerId: no answer");
    answer.getInt();
    short error = answer.getShort();
    if (error != 0) throw new java.io.IOException("InitProducerId: error " + error);
    producerId = answer.getLong();
    producerEpoch = answer.getShort();
    if (producerId < 0L) throw new java.io.IOException("InitProducerId: no id");
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) ((PartitionLeader) each.next()).connection.setPatience(patience);
  }

  /** Of the topic. */
  int partitions() {
    return leaderOf.length;
  }

  long bytesMax() {
    return bytesMax;
  }

  /** One that nobody uses, or null. */
  byte[] spareBuffer() {
    byte[] found = (byte[]) spare.poll();
    if (found != null) spareBytes -= found.length;
    return found;
  }

  /**
   * Takes a piece for that partition, or where it is negative for each in turn, with its buffer;
   * afterwards it is in flight or among the leftovers.
   */
  void send(byte[] records, int end, int count, long base, long latest, int partition)
      throws java.io.IOException {
    SentPiece piece = new SentPiece();
    piece.records = records;
    piece.end = end;
    piece.count = count;
    piece.base = base;
    piece.latest = latest;
    piece.partition = partition < 0 ? turn++ % leaderOf.length : partition;
    piece.sequence = sequences[piece.partition];
    sequences[piece.partition] = following(piece.sequence, count);
    next = piece;
    collectAnswered();
    PartitionLeader leader = leaderOf[piece.partition];
    while (busy[piece.partition] || leader.inFlight.size() >= PIECES_PER_BROKER) collect(leader);
    while (bytes > 0L && bytes + records.length > bytesMax) collect(oldest());
    write(leader, piece);
    leader.inFlight.add(piece);
    busy[piece.partition] = true;
    bytes += records.length;
    while (spareBytes > 0L && bytes + spareBytes > bytesMax) spareBuffer();
    next = null;
  }

  /** They begin at 0 again. */
  static int following(int sequence, int count) {
    return sequence + count & Integer.MAX_VALUE;
  }

  /** Returns when all were acknowledged. */
  void finish() throws java.io.IOException {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      while (!leader.inFlight.isEmpty()) collect(leader);
    }
    close();
  }

  /** Takes the answers that are there, whatever they are, and closes all connections. */
  void end() {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      try {
        while (hasAnswer(leader)) {
          if (errorOf(leader) == 0) acknowledge(leader);
          else leader.refused.add(leader.inFlight.poll());
        }
      } catch (java.io.IOException error) {
        // What is left of it was not acknowledged.
      }
    }
    close();
  }

  void close() {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) ((PartitionLeader) each.next()).connection.close();
  }

  /** Records. */
  long acknowledged() {
    return acknowledged;
  }

  /** What was not acknowledged, in the order of each partition. */
  java.util.ArrayList leftovers() {
    java.util.ArrayList left = new java.util.ArrayList();
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      left.addAll(leader.refused);
      left.addAll(leader.inFlight);
    }
    if (next != null) left.add(next);
    return left;
  }

  /**
   * Producer id and epoch, the topic's id, how many pieces are left, since when the first of them
   * has been, and of each partition the sequence of its first one, or of the next piece.
   */
  byte[] handover() {
    int[] from = (int[]) sequences.clone();
    java.util.ArrayList left = leftovers();
    for (int i = left.size() - 1; i >= 0; i--) {
      SentPiece piece = (SentPiece) left.get(i);
      from[piece.partition] = piece.sequence;
    }
    java.nio.ByteBuffer told = java.nio.ByteBuffer.allocate(8 + 2 + 16 + 4 + 8 + 4 * from.length);
    told.putLong(producerId);
    told.putShort(producerEpoch);
    told.putLong(topicIdHigh);
    told.putLong(topicIdLow);
    told.putInt(left.size());
    told.putLong(sentSince());
    for (int i = 0; i < from.length; i++) told.putInt(from[i]);
    return told.array();
  }

  /** When the first of what is left was sent, in milliseconds since 1970; now: nothing was. */
  private long sentSince() {
    long now = System.nanoTime();
    long since = now;
    java.util.ArrayList left = leftovers();
    for (int i = 0; i < left.size(); i++) {
      SentPiece piece = (SentPiece) left.get(i);
      if (piece != next && piece.sent - since < 0L) since = piece.sent;
    }
    return System.currentTimeMillis() - (now - since) / 1000000L;
  }

  /** The leader of the piece that has been in flight for longest. */
  private PartitionLeader oldest() {
    PartitionLeader found = null;
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      if (leader.first() == null) continue;
      if (found == null || leader.first().sent - found.first().sent < 0L) found = leader;
    }
    return found;
  }

  /**
   * Takes the answers that are there.  Who is handed a piece takes it for one that brokers may not
   * have, and sends it again, though its answer lay there for longer than they know producers.
   */
  private void collectAnswered() throws java.io.IOException {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      while (hasAnswer(leader)) collect(leader);
    }
  }

  private static boolean hasAnswer(PartitionLeader leader) throws java.io.IOException {
    return leader.first() != null && leader.connection.hasAnswer();
  }

  /** Waits for that answer, and throws unless it is success. */
  private void collect(PartitionLeader leader) throws java.io.IOException {
    SentPiece piece = leader.first();
    int error = errorOf(leader);
    if (isNotOpened(error) && piece.sequence == 0
        && System.nanoTime() - opened < OPENING_MS * 1000000L) {
      pause();
      leader.inFlight.add(leader.inFlight.poll());
      write(leader, piece);
      return;
    }
    if (error != 0) {
      leader.refused.add(leader.inFlight.poll());
      throw new java.io.IOException("Produce to partition " + piece.partition + ": error " + error);
    }
    acknowledge(leader);
  }

  private void acknowledge(PartitionLeader leader) {
    SentPiece piece = (SentPiece) leader.inFlight.poll();
    busy[piece.partition] = false;
    acknowledged += piece.count;
    bytes -= piece.records.length;
    if (bytes + spareBytes + piece.records.length <= bytesMax) {
      spare.push(piece.records);
      spareBytes += piece.records.length;
    }
  }

  private static boolean isNotOpened(int error) {
    return NOT_OPENED;
  }

  private static void pause() {
    try {
      Thread.sleep(OPENING_PAUSE_MS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** Waits for the answer to the first piece of a leader. */
  private int errorOf(PartitionLeader leader) throws java.io.IOException {
    SentPiece piece = leader.first();
    java.nio.ByteBuffer answer = leader.connection.receive(piece.correlation);
    try {
      Wire.skipTags(answer);
      boolean expected = Wire.count(answer) == 1;
      expected &= answer.getLong() == topicIdHigh;
      expected &= answer.getLong() == topicIdLow;
      expected &= Wire.count(answer) == 1;
      expected &= answer.getInt() == piece.partition;
      if (!expected) throw new java.io.IOException("an answer to something else");
      return answer.getShort();
    } catch (RuntimeException error) {
      throw Wire.malformed(error);
    }
  }

  /** Produce v13, acks=all, with one batch of format 2. */
  private void write(PartitionLeader leader, SentPiece piece) throws java.io.IOException {
    java.nio.ByteBuffer to = leader.connection.request(0, 13, true, 128);
    piece.correlation = leader.connection.correlation();
    piece.sent = System.nanoTime();
    to.put((byte) 0);
    to.putShort((short) -1);
    to.putInt((int) patience);
    to.put((byte) 2);
    to.putLong(topicIdHigh);
    to.putLong(topicIdLow);
    to.put((byte) 2);
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
    to.putLong(producerId);
    to.putShort(producerEpoch);
    to.putInt(piece.sequence);
    to.putInt(piece.count);
    crc.reset();
    crc.update(to.array(), checked, to.position() - checked);
    crc.update(piece.records, 0, piece.end);
    to.putInt(checked - 4, (int) crc.getValue());
    // No tags: of the partition, of the topic, of the request.
    leader.connection.send(piece.records, piece.end, 3);
  }
}
"""


def piece_sender_java() -> str:
    """The class ``PieceSender``, and those that it needs, for inside others."""
    named = {
        "PIECES_PER_BROKER": str(PIECES_PER_BROKER),
        "OPENING_MS": f"{OPENING_MS}L",
        "OPENING_PAUSE_MS": f"{OPENING_PAUSE_MS}L",
        "NOT_OPENED": " || ".join(f"error == {code.value}" for code in _NOT_OPENED),
        "BATCH_OVERHEAD": str(BATCH_OVERHEAD),
        "LOG_OVERHEAD": str(LOG_OVERHEAD),
    }
    return filled(_JAVA, named) + topic_leaders_java() + broker_connection_java()
