"""Where a task's pieces go: to brokers from inside the JVM, or to Python.

Owns: the Java of that choice, and the rows that go to Python.  Must not know how records are laid
out, nor what is said to brokers.

Pieces are sent (``piece_sender``) when the write has a destination, until something is not as it
should be.  Then, and without a destination, they are rows for Python.  A row is one of these:

- A piece: ``record_count`` records, and the ``partition`` that they are meant for, or
  ``ANY_PARTITION``, or ``BY_KEY``: that of each one's key.
- A report, without records: how many were ``acknowledged`` so far.  It is the only row of a task
  that has sent all by itself.  Where it has not, ``records`` are the handover that
  ``PieceSender.handover`` made; what was not acknowledged follows, and then all other pieces.
"""

from typing import Final

from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.dataframe.jvm.piece_sender import piece_sender_java

#: In the column ``partition``: one for all, or that of each record's key.
ANY_PARTITION: Final = -1
BY_KEY: Final = -2

#: Columns of the rows; times in milliseconds.
ROW_COLUMNS: Final = (
    ("records", "BINARY"),
    ("record_count", "INT"),
    ("base_timestamp", "BIGINT"),
    ("max_timestamp", "BIGINT"),
    ("partition", "INT"),
    ("acknowledged", "BIGINT"),
)

_JAVA: Final = r"""
final class PieceOutlet implements org.apache.spark.util.TaskCompletionListener {
  private static final org.slf4j.Logger LOG =
      org.slf4j.LoggerFactory.getLogger("sparklog.dataframe");
  private final org.apache.spark.TaskContext task;
  private final java.util.ArrayDeque rows = new java.util.ArrayDeque();
  /** Until the first piece. */
  private String[] destination;
  private PieceSender sender;

  /** The destination is that of PieceSender; null: all goes to Python. */
  PieceOutlet(String[] destination, org.apache.spark.TaskContext task) {
    this.destination = destination;
    this.task = task;
  }

  /** Of the topic, if the pieces are sent; 0: nobody has asked. */
  int partitions() {
    if (destination != null) open();
    return sender == null ? 0 : sender.partitions();
  }

  /** That buffers in flight may have, if pieces are sent. */
  long bytesMax() {
    return sender.bytesMax();
  }

  /** Takes a piece, with its buffer, and gives one for the next, or null: there is none. */
  byte[] take(byte[] records, int end, int count, long base, long latest, int partition) {
    task.killTaskIfInterrupted();
    if (destination != null) open();
    if (sender == null) {
      byte[] exactly = java.util.Arrays.copyOf(records, end);
      rows.add(made(exactly, count, base, latest, partition, 0L));
      return records;
    }
    try {
      sender.send(records, end, count, base, latest, partition);
    } catch (java.io.IOException error) {
      handOver(error);
      return null;
    }
    return sender.spareBuffer();
  }

  boolean hasRows() {
    return !rows.isEmpty();
  }

  /** The next row for Python; null: none for now. */
  InternalRow next() {
    return (InternalRow) rows.poll();
  }

  /** After the last piece. */
  void finish() {
    if (sender == null) return;
    try {
      sender.finish();
      rows.add(made(new byte[0], 0, 0L, 0L, ANY_PARTITION, sender.acknowledged()));
      sender = null;
    } catch (java.io.IOException error) {
      handOver(error);
    }
  }

  private void open() {
    String[] found = destination;
    destination = null;
    try {
      sender = new PieceSender(found, task);
      task.addTaskCompletionListener((org.apache.spark.util.TaskCompletionListener) this);
    } catch (java.io.IOException error) {
      checkKilled();
      LOG.info("Python does this task's write: " + error);
    }
  }

  private void handOver(java.io.IOException why) {
    PieceSender from = sender;
    sender = null;
    from.end();
    checkKilled();
    LOG.warn("Python goes on with this task's write: " + why);
    rows.add(made(from.handover(), 0, 0L, 0L, ANY_PARTITION, from.acknowledged()));
    java.util.ArrayList left = from.leftovers();
    for (int i = 0; i < left.size(); i++) {
      SentPiece piece = (SentPiece) left.get(i);
      byte[] records = java.util.Arrays.copyOf(piece.records, piece.end);
      rows.add(made(records, piece.count, piece.base, piece.latest, piece.partition, 0L));
    }
  }

  /** An interrupted thread cannot use its connections any more: that is no fault of theirs. */
  private void checkKilled() {
    task.killTaskIfInterrupted();
    if (Thread.currentThread().isInterrupted())
      throw new org.apache.spark.TaskKilledException("interrupted while writing to a broker");
  }

  private static InternalRow made(
      byte[] records, int count, long base, long latest, int partition, long acknowledged) {
    return new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(new Object[] {
        records, Integer.valueOf(count), Long.valueOf(base), Long.valueOf(latest),
        Integer.valueOf(partition), Long.valueOf(acknowledged)});
  }

  /** Spark's, when the task ends in any way. */
  public void onTaskCompletion(org.apache.spark.TaskContext ended) {
    if (sender != null) sender.close();
  }
}
"""


def piece_outlet_java() -> str:
    """The class ``PieceOutlet``, and those that it needs, for inside others."""
    named = {"ANY_PARTITION": str(ANY_PARTITION)}
    return filled(_JAVA, named) + piece_sender_java()
