"""Sends a task's pieces from inside the JVM, as long as all goes well.

Owns: the Java of an idempotent producer for the pieces of one task: what is in flight, and what it
hands over.  Must not know how requests and records are laid out, how bytes travel, nor what becomes
of what it hands over.

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

from sparklog.dataframe.jvm.broker_connection import broker_connection_java
from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.dataframe.jvm.produce_requests import produce_requests_java
from sparklog.dataframe.jvm.topic_leaders import topic_leaders_java
from sparklog.errors import ErrorCode

#: Requests that a broker has of one task, and the bytes of the pieces that wait for the next one,
#: unless it is a single piece: where brokers answer late, a request has those of many partitions.
REQUESTS_PER_BROKER: Final = 4
REQUEST_BYTES: Final = 1_000_000
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
final class PartitionLeader {
  final BrokerConnection connection;
  /** Requests, in the order of their answers. */
  final java.util.ArrayDeque inFlight = new java.util.ArrayDeque();
  /** Pieces for the next request; there are none while one more may be in flight. */
  final java.util.ArrayList waiting = new java.util.ArrayList();
  long waitingBytes;
  /** Pieces that were answered with an error. */
  final java.util.ArrayList refused = new java.util.ArrayList();

  PartitionLeader(BrokerConnection connection) {
    this.connection = connection;
  }

  SentRequest first() {
    return (SentRequest) inFlight.peek();
  }
}

final class PieceSender {
  private final long patience;
  private final long bytesMax;
  private final long opened = System.nanoTime();
  private final java.util.LinkedHashMap leaders = new java.util.LinkedHashMap();
  /** Buffers that nobody uses. */
  private final java.util.ArrayDeque spare = new java.util.ArrayDeque();
  private final Producer producer;
  /** By partition: its leader, whether that has a piece or will, and the next sequence. */
  private PartitionLeader[] leaderOf;
  private boolean[] busy;
  private int[] sequences;
  private int turn;
  /** Of the buffers of pieces that were not acknowledged, and of those that nobody uses. */
  private long bytes;
  private long spareBytes;
  /** What waits for room. */
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
    producer = new Producer(found.topicIdHigh, found.topicIdLow, (int) patience);
    leaderOf = new PartitionLeader[found.servers.length];
    busy = new boolean[leaderOf.length];
    sequences = new int[leaderOf.length];
    boolean ready = false;
    try {
      for (int i = 0; i < leaderOf.length; i++)
        leaderOf[i] = leader(found.servers[i], client, deadline, task);
      producer.identify(leaderOf[0].connection);
      setPatience();
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

  private void setPatience() {
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
   * afterwards it is in flight, or will be, or it is among the leftovers.
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
    while (busy[piece.partition] || hasEnough(leader, end)) collect(leader);
    while (bytes > 0L && bytes + records.length > bytesMax) collect(oldest());
    leader.waiting.add(piece);
    leader.waitingBytes += end;
    busy[piece.partition] = true;
    bytes += records.length;
    next = null;
    sendWaiting(leader);
    while (spareBytes > 0L && bytes + spareBytes > bytesMax) spareBuffer();
  }

  /** Whether its next request has no room for so many bytes more. */
  private static boolean hasEnough(PartitionLeader leader, int more) {
    return leader.waitingBytes > 0L && leader.waitingBytes + more > REQUEST_BYTES;
  }

  /** Unless it has enough requests to answer. */
  private void sendWaiting(PartitionLeader leader) throws java.io.IOException {
    if (leader.waiting.isEmpty() || leader.inFlight.size() >= REQUESTS_PER_BROKER) return;
    SentRequest request = new SentRequest(leader.waiting);
    leader.waiting.clear();
    leader.waitingBytes = 0L;
    send(leader, request);
  }

  /** Afterwards it is in flight, if only in part. */
  private void send(PartitionLeader leader, SentRequest request) throws java.io.IOException {
    leader.inFlight.add(request);
    producer.send(leader.connection, request);
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
        while (hasAnswer(leader)) leader.refused.addAll(failed(leader));
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
      java.util.Iterator requests = leader.inFlight.iterator();
      while (requests.hasNext())
        left.addAll(java.util.Arrays.asList((Object[]) ((SentRequest) requests.next()).pieces));
      left.addAll(leader.waiting);
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
    told.putLong(producer.id);
    told.putShort(producer.epoch);
    told.putLong(producer.topicIdHigh);
    told.putLong(producer.topicIdLow);
    told.putInt(left.size());
    told.putLong(sentSince(left));
    for (int i = 0; i < from.length; i++) told.putInt(from[i]);
    return told.array();
  }

  /** When the first of what is left was sent, in milliseconds since 1970; now: nothing was. */
  private static long sentSince(java.util.ArrayList left) {
    long now = System.nanoTime();
    long since = now;
    for (int i = 0; i < left.size(); i++) {
      SentPiece piece = (SentPiece) left.get(i);
      if (piece.isSent && piece.sent - since < 0L) since = piece.sent;
    }
    return System.currentTimeMillis() - (now - since) / 1000000L;
  }

  /** The leader of the request that has been in flight for longest. */
  private PartitionLeader oldest() {
    PartitionLeader found = null;
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      if (leader.first() == null) continue;
      if (found == null || sent(leader) - sent(found) < 0L) found = leader;
    }
    return found;
  }

  private static long sent(PartitionLeader leader) {
    return leader.first().pieces[0].sent;
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

  /** Waits for the next answer of a leader, and throws unless it is success. */
  private void collect(PartitionLeader leader) throws java.io.IOException {
    java.util.ArrayList failed = failed(leader);
    if (!failed.isEmpty()) {
      for (int i = 0; i < failed.size(); i++) {
        SentPiece piece = (SentPiece) failed.get(i);
        if (!mayOpen(piece)) {
          leader.refused.addAll(failed);
          throw new java.io.IOException(
              "Produce to partition " + piece.partition + ": error " + piece.error);
        }
      }
      pause();
      send(leader, new SentRequest(failed));
    }
    sendWaiting(leader);
  }

  /** Whether the leader may not have opened the partition yet. */
  private boolean mayOpen(SentPiece piece) {
    return isNotOpened(piece.error) && piece.sequence == 0
        && System.nanoTime() - opened < OPENING_MS * 1000000L;
  }

  /** Waits for the next answer of a leader, and gives the pieces that were not acknowledged. */
  private java.util.ArrayList failed(PartitionLeader leader) throws java.io.IOException {
    producer.receive(leader.connection, leader.first());
    SentPiece[] pieces = ((SentRequest) leader.inFlight.poll()).pieces;
    java.util.ArrayList failed = new java.util.ArrayList();
    for (int i = 0; i < pieces.length; i++) {
      if (pieces[i].error == 0) acknowledge(pieces[i]);
      else failed.add(pieces[i]);
    }
    return failed;
  }

  private void acknowledge(SentPiece piece) {
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
}
"""


def piece_sender_java() -> str:
    """The class ``PieceSender``, and those that it needs, for inside others."""
    named = {
        "REQUESTS_PER_BROKER": str(REQUESTS_PER_BROKER),
        "REQUEST_BYTES": f"{REQUEST_BYTES}L",
        "OPENING_MS": f"{OPENING_MS}L",
        "OPENING_PAUSE_MS": f"{OPENING_PAUSE_MS}L",
        "NOT_OPENED": " || ".join(f"error == {code.value}" for code in _NOT_OPENED),
    }
    classes = topic_leaders_java() + produce_requests_java() + broker_connection_java()
    return filled(_JAVA, named) + classes
