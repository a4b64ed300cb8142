/*
 * The sender of a task's pieces from inside the JVM, which works as long as all goes well.
 *
 * Owns: an idempotent producer for the pieces of one task: what is in flight, and what is handed
 * over.
 * Must not know: how requests and records are laid out, how bytes travel, what becomes of a
 * handover; Spark's planner.
 *
 * The sender knows one outcome, success.  Whatever else happens (an error code, a malformed
 * response, a lost connection, no progress for a while) ends the sender.  Its successor is the
 * producer in Python (write/sender.py), which gets the producer id, the next sequence number of
 * each partition, and the pieces that were not acknowledged, to send them again as they are.  So
 * retries, new leaders, missing topics and refused records are dealt with in one place, the
 * successor.
 *
 * By its sequence number a broker recognises a piece that it has already, and a piece that arrives
 * late.  For that, at most one piece of each partition is in flight at a time.  Requests name the
 * topic by its id (KIP-516): a topic that was deleted and created again refuses the next piece.
 *
 * The sender does wait for one thing: the leader of a new partition may not have opened it yet.
 */
package sparklog.dataframe;

final class PieceSender {
  /** For how long a leader may not have opened its partition yet. */
  private static final int OPENING_MS = 2000;
  /** The pause before a leader is asked again. */
  private static final long OPENING_PAUSE_MS = 20L;
  /** How long to wait for progress, in milliseconds. */
  private final long patienceMs;
  /** Bytes that buffers may have, unless there is only one buffer. */
  private final long bytesMax;
  /** When this sender was made, by System.nanoTime. */
  private final long openedNs = System.nanoTime();
  /** PartitionLeader by HOST:PORT. */
  private final java.util.LinkedHashMap leaders = new java.util.LinkedHashMap();
  /** Buffers that no piece uses. */
  private final java.util.ArrayDeque spareBuffers = new java.util.ArrayDeque();
  private final ProduceRequests producer;
  /** By partition: the leader, whether a piece is in flight or waits, and the next sequence. */
  private PartitionLeader[] leaderOf;
  private boolean[] busy;
  private int[] nextSequences;
  /** For pieces without a partition, which take the partitions in turn: modulo their number. */
  private int nextPartition;
  /** Bytes of the buffers of pieces that were not acknowledged, and of spare buffers. */
  private long usedBytes;
  private long spareBytes;
  /** The piece that waits for room. */
  private SentPiece pendingPiece;
  /** Records that were acknowledged. */
  private long acknowledged;

  /**
   * Connects to the leaders of an existing topic, and gets a producer id.  The destination is that
   * of PieceDestination: servers as HOST:PORT,..., topic, client id, patience in milliseconds, and
   * the bytes that buffers may have, unless there is only one buffer.
   */
  PieceSender(String[] destination, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    String clientId = destination[2];
    patienceMs = Long.parseLong(destination[3]);
    bytesMax = Long.parseLong(destination[4]);
    nextPartition = java.util.concurrent.ThreadLocalRandom.current().nextInt(1 << 16);
    long deadlineNs = openedNs + patienceMs * 1000000L;
    TopicLeaders found =
        new TopicLeaders(destination[1], destination[0].split(","), clientId, deadlineNs, task);
    producer = new ProduceRequests(found.topicIdHigh, found.topicIdLow, (int) patienceMs);
    leaderOf = new PartitionLeader[found.servers.length];
    busy = new boolean[leaderOf.length];
    nextSequences = new int[leaderOf.length];
    boolean ready = false;
    try {
      for (int i = 0; i < leaderOf.length; i++)
        leaderOf[i] = leader(found.servers[i], clientId, deadlineNs, task);
      producer.initProducerId(leaderOf[0].connection);
      setPatienceMs();
      ready = true;
    } finally {
      if (!ready) close();
    }
  }

  /** The leader at that address, with one connection for all of its partitions. */
  private PartitionLeader leader(
      String server, String clientId, long deadlineNs, org.apache.spark.TaskContext task)
      throws java.io.IOException {
    PartitionLeader found = (PartitionLeader) leaders.get(server);
    if (found == null) {
      found = new PartitionLeader(new BrokerConnection(server, clientId, deadlineNs, task));
      leaders.put(server, found);
    }
    return found;
  }

  private void setPatienceMs() {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) ((PartitionLeader) each.next()).connection.setPatienceMs(patienceMs);
  }

  /** How many partitions the topic has. */
  int partitions() {
    return leaderOf.length;
  }

  /** Bytes that buffers may have, unless there is only one buffer. */
  long bytesMax() {
    return bytesMax;
  }

  /** Gives a spare buffer away, or null if there is none. */
  byte[] spareBuffer() {
    byte[] found = (byte[]) spareBuffers.poll();
    if (found != null) spareBytes -= found.length;
    return found;
  }

  /**
   * Takes a piece with its buffer.  A negative partition stands for the partitions in turn.
   * Afterwards the piece is in flight, or waits for the next request, or is unacknowledged.
   */
  void send(
      byte[] records, int end, int recordCount, long baseTimestamp, long maxTimestamp,
      int partition) throws java.io.IOException {
    SentPiece piece = new SentPiece();
    piece.records = records;
    piece.end = end;
    piece.recordCount = recordCount;
    piece.baseTimestamp = baseTimestamp;
    piece.maxTimestamp = maxTimestamp;
    piece.partition = partition < 0 ? nextPartition++ % leaderOf.length : partition;
    piece.baseSequence = nextSequences[piece.partition];
    nextSequences[piece.partition] = incrementSequence(piece.baseSequence, recordCount);
    pendingPiece = piece;
    collectResponses();
    PartitionLeader leader = leaderOf[piece.partition];
    while (busy[piece.partition] || isFull(leader, end)) collect(leader);
    while (usedBytes > 0L && usedBytes + records.length > bytesMax)
      collect(leaderOfOldestRequest());
    leader.waiting.add(piece);
    leader.waitingBytes += end;
    busy[piece.partition] = true;
    usedBytes += records.length;
    pendingPiece = null;
    sendWaiting(leader);
    while (spareBytes > 0L && usedBytes + spareBytes > bytesMax) spareBuffer();
  }

  /** Whether the leader's next request has no room for {@code more} bytes. */
  private static boolean isFull(PartitionLeader leader, int more) {
    return leader.waitingBytes > 0L && leader.waitingBytes + more > Constants.REQUEST_BYTES;
  }

  /** Sends the waiting pieces, unless the leader has enough requests to answer. */
  private void sendWaiting(PartitionLeader leader) throws java.io.IOException {
    if (leader.waiting.isEmpty() || leader.inFlight.size() >= Constants.REQUESTS_PER_BROKER) return;
    SentRequest request = new SentRequest(leader.waiting);
    leader.waiting.clear();
    leader.waitingBytes = 0L;
    send(leader, request);
  }

  /** Sends a request.  Afterwards it is in flight, even if only a part of it was sent. */
  private void send(PartitionLeader leader, SentRequest request) throws java.io.IOException {
    leader.inFlight.add(request);
    producer.send(leader.connection, request);
  }

  /** The sequence number after {@code recordCount} records; behind the largest one comes 0. */
  static int incrementSequence(int sequence, int recordCount) {
    return sequence + recordCount & Integer.MAX_VALUE;
  }

  /** Returns when all pieces were acknowledged, and closes all connections. */
  void finish() throws java.io.IOException {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      while (!leader.inFlight.isEmpty()) collect(leader);
    }
    close();
  }

  /** Takes the responses that have arrived, whatever they are, and closes all connections. */
  void abandon() {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      try {
        while (hasResponse(leader)) leader.refused.addAll(receive(leader));
      } catch (java.io.IOException error) {
        // The rest of this leader's pieces was not acknowledged.
      }
    }
    close();
  }

  void close() {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) ((PartitionLeader) each.next()).connection.close();
  }

  /** How many records were acknowledged. */
  long acknowledged() {
    return acknowledged;
  }

  /** The pieces that were not acknowledged, in the order of each partition. */
  java.util.ArrayList unacknowledged() {
    java.util.ArrayList leftover = new java.util.ArrayList();
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      leftover.addAll(leader.refused);
      java.util.Iterator requests = leader.inFlight.iterator();
      while (requests.hasNext())
        leftover.addAll(java.util.Arrays.asList((Object[]) ((SentRequest) requests.next()).pieces));
      leftover.addAll(leader.waiting);
    }
    if (pendingPiece != null) leftover.add(pendingPiece);
    return leftover;
  }

  /**
   * What the successor has to know: producer id and epoch, the topic's id, the number of leftover
   * pieces, when the first of them was sent, and for each partition the sequence number of its
   * first leftover, or of its next piece.
   */
  byte[] handover() {
    int[] from = (int[]) nextSequences.clone();
    java.util.ArrayList leftover = unacknowledged();
    for (int i = leftover.size() - 1; i >= 0; i--) {
      SentPiece piece = (SentPiece) leftover.get(i);
      from[piece.partition] = piece.baseSequence;
    }
    int size = 8 + 2 + 16 + 4 + 8 + 4 * from.length;
    java.nio.ByteBuffer handover = java.nio.ByteBuffer.allocate(size);
    handover.putLong(producer.producerId);
    handover.putShort(producer.producerEpoch);
    handover.putLong(producer.topicIdHigh);
    handover.putLong(producer.topicIdLow);
    handover.putInt(leftover.size());
    handover.putLong(firstSentMs(leftover));
    for (int i = 0; i < from.length; i++) handover.putInt(from[i]);
    return handover.array();
  }

  /** When the first leftover was sent, in milliseconds since 1970; now if none was sent. */
  private static long firstSentMs(java.util.ArrayList leftover) {
    long now = System.nanoTime();
    long since = now;
    for (int i = 0; i < leftover.size(); i++) {
      SentPiece piece = (SentPiece) leftover.get(i);
      if (piece.isSent && piece.sentNs - since < 0L) since = piece.sentNs;
    }
    return System.currentTimeMillis() - (now - since) / 1000000L;
  }

  /** The leader of the request that has been in flight for longest, or null. */
  private PartitionLeader leaderOfOldestRequest() {
    PartitionLeader found = null;
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      if (leader.first() == null) continue;
      if (found == null || oldestSentNs(leader) - oldestSentNs(found) < 0L) found = leader;
    }
    return found;
  }

  private static long oldestSentNs(PartitionLeader leader) {
    return leader.first().pieces[0].sentNs;
  }

  /**
   * Takes the responses that have arrived.  A response that stays unread must not let its piece be
   * handed over: the successor would send the piece again, perhaps after brokers have forgotten the
   * producer.
   */
  private void collectResponses() throws java.io.IOException {
    java.util.Iterator each = leaders.values().iterator();
    while (each.hasNext()) {
      PartitionLeader leader = (PartitionLeader) each.next();
      while (hasResponse(leader)) collect(leader);
    }
  }

  private static boolean hasResponse(PartitionLeader leader) throws java.io.IOException {
    return leader.first() != null && leader.connection.hasResponse();
  }

  /** Waits for the next response of a leader, and throws unless it is success. */
  private void collect(PartitionLeader leader) throws java.io.IOException {
    java.util.ArrayList failed = receive(leader);
    if (!failed.isEmpty()) {
      for (int i = 0; i < failed.size(); i++) {
        SentPiece piece = (SentPiece) failed.get(i);
        if (!mayBeOpening(piece)) {
          leader.refused.addAll(failed);
          throw new java.io.IOException(
              "Produce to partition " + piece.partition + ": error " + piece.errorCode);
        }
      }
      pause();
      send(leader, new SentRequest(failed));
    }
    sendWaiting(leader);
  }

  /** Whether the leader may not have opened the partition yet. */
  private boolean mayBeOpening(SentPiece piece) {
    return isNotOpened(piece.errorCode) && piece.baseSequence == 0
        && System.nanoTime() - openedNs < OPENING_MS * 1000000L;
  }

  /** Waits for the next response of a leader, and returns the pieces that it refuses. */
  private java.util.ArrayList receive(PartitionLeader leader) throws java.io.IOException {
    producer.receive(leader.connection, leader.first());
    SentPiece[] pieces = ((SentRequest) leader.inFlight.poll()).pieces;
    java.util.ArrayList failed = new java.util.ArrayList();
    for (int i = 0; i < pieces.length; i++) {
      if (pieces[i].errorCode == 0) acknowledge(pieces[i]);
      else failed.add(pieces[i]);
    }
    return failed;
  }

  private void acknowledge(SentPiece piece) {
    busy[piece.partition] = false;
    acknowledged += piece.recordCount;
    usedBytes -= piece.records.length;
    if (usedBytes + spareBytes + piece.records.length <= bytesMax) {
      spareBuffers.push(piece.records);
      spareBytes += piece.records.length;
    }
  }

  /** Whether the error says that the leader does not have the partition (yet). */
  private static boolean isNotOpened(int error) {
    return error == Constants.UNKNOWN_TOPIC_OR_PARTITION
        || error == Constants.NOT_LEADER_OR_FOLLOWER
        || error == Constants.UNKNOWN_TOPIC_ID;
  }

  private static void pause() {
    try {
      Thread.sleep(OPENING_PAUSE_MS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
