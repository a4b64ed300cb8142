/*
 * The way of a task's pieces: to brokers from inside the JVM, or to Python.
 *
 * Owns: the choice between both, and the rows that go to Python.
 * Must not know: how records are laid out, what is said to brokers; Spark's planner.
 *
 * Pieces are sent (PieceSender) when the write has a destination, until something goes wrong.  From
 * then on, and without a destination, pieces become rows for Python.  The columns of the rows are
 * listed in constants.py (ROW_COLUMNS).  A row is either a piece or a report:
 *
 * - A piece has record_count records, and the partition that they are meant for, or ANY_PARTITION,
 *   or BY_KEY, which stands for the partition of each record's key.
 * - A report has no records, and says how many records were acknowledged so far.  The report is the
 *   only row of a task that has sent everything by itself.  After a failure, the report's column
 *   records holds the bytes of PieceSender.handover.  The pieces that were not acknowledged follow,
 *   and then all other pieces.
 */
package sparklog.dataframe;

import org.apache.spark.sql.catalyst.InternalRow;

final class PieceOutlet implements org.apache.spark.util.TaskCompletionListener {
  private static final org.slf4j.Logger LOG =
      org.slf4j.LoggerFactory.getLogger("sparklog.dataframe");
  private final org.apache.spark.TaskContext task;
  /** Rows for Python. */
  private final java.util.ArrayDeque rows = new java.util.ArrayDeque();
  /** Where to send pieces, until the sender is opened for it; null if Python sends. */
  private String[] destination;
  /** Null if Python sends. */
  private PieceSender sender;

  /** The destination is that of PieceSender; null sends all pieces to Python. */
  PieceOutlet(String[] destination, org.apache.spark.TaskContext task) {
    this.destination = destination;
    this.task = task;
  }

  /** How many partitions the topic has; 0 if pieces are not sent. */
  int partitions() {
    if (destination != null) openSender();
    return sender == null ? 0 : sender.partitions();
  }

  /** Bytes that buffers in flight may have.  Call this only if {@code partitions} is not 0. */
  long bytesMax() {
    return sender.bytesMax();
  }

  /** Takes a piece with its buffer, and returns a buffer for the next piece, or null. */
  byte[] take(
      byte[] records, int end, int recordCount, long baseTimestamp, long maxTimestamp,
      int partition) {
    task.killTaskIfInterrupted();
    if (destination != null) openSender();
    if (sender == null) {
      byte[] exactly = java.util.Arrays.copyOf(records, end);
      rows.add(row(exactly, recordCount, baseTimestamp, maxTimestamp, partition, 0L));
      return records;
    }
    try {
      sender.send(records, end, recordCount, baseTimestamp, maxTimestamp, partition);
    } catch (java.io.IOException error) {
      handOver(error);
      return null;
    }
    return sender.spareBuffer();
  }

  boolean hasRows() {
    return !rows.isEmpty();
  }

  /** The next row for Python; null if there is none for now. */
  InternalRow next() {
    return (InternalRow) rows.poll();
  }

  /** Ends the task's write.  To be called after the last piece. */
  void finish() {
    if (sender == null) return;
    try {
      sender.finish();
      rows.add(row(new byte[0], 0, 0L, 0L, Constants.ANY_PARTITION, sender.acknowledged()));
      sender = null;
    } catch (java.io.IOException error) {
      handOver(error);
    }
  }

  /** Tries to open the sender, once. */
  private void openSender() {
    String[] given = destination;
    destination = null;
    try {
      sender = new PieceSender(given, task);
      task.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) this);
    } catch (java.io.IOException error) {
      checkKilled();
      LOG.info("Python does this task's write: " + error);
    }
  }

  /** Ends the sender, and makes rows of what it did not get acknowledged. */
  private void handOver(java.io.IOException cause) {
    PieceSender failed = sender;
    sender = null;
    failed.abandon();
    checkKilled();
    LOG.warn("Python goes on with this task's write: " + cause);
    rows.add(row(failed.handover(), 0, 0L, 0L, Constants.ANY_PARTITION, failed.acknowledged()));
    java.util.ArrayList leftover = failed.unacknowledged();
    for (int i = 0; i < leftover.size(); i++) {
      SentPiece piece = (SentPiece) leftover.get(i);
      byte[] records = java.util.Arrays.copyOf(piece.records, piece.end);
      rows.add(row(
          records, piece.recordCount, piece.baseTimestamp, piece.maxTimestamp, piece.partition,
          0L));
    }
  }

  /** An interrupted thread cannot use its connections any more: no reason to hand over. */
  private void checkKilled() {
    task.killTaskIfInterrupted();
    if (Thread.currentThread().isInterrupted())
      throw new org.apache.spark.TaskKilledException("interrupted while writing to a broker");
  }

  private static InternalRow row(
      byte[] records, int recordCount, long baseTimestamp, long maxTimestamp, int partition,
      long acknowledged) {
    return new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(new Object[] {
        records, Integer.valueOf(recordCount), Long.valueOf(baseTimestamp),
        Long.valueOf(maxTimestamp), Integer.valueOf(partition), Long.valueOf(acknowledged)});
  }

  /** Called by Spark when the task ends in any way. */
  public void onTaskCompletion(org.apache.spark.TaskContext ended) {
    if (sender != null) sender.close();
  }
}
