"""The packer: rows of Spark -> the records of Kafka's batches, inside the JVM.

Owns: the Java that lays records out, the columns of what it gives, and its limits.  Must not know
how it comes into a plan, nor what becomes of the pieces.

It is the body of a class, as Spark's generated code is, and travels as that does: as text, which
every executor compiles for itself.  So executors need no jar of ours.

A piece is the section of records of one batch: at most as many records as fit, or one larger one.
Pieces begin small, so that few rows spread over partitions as well, and grow with what the task has
written.  Rows without a time get that of their piece's first record.
"""

from typing import Final

from sparklog.dataframe.jvm_class import filled

#: Columns of a piece; times in milliseconds.
PIECE_COLUMNS: Final = (
    ("records", "BINARY"),
    ("record_count", "INT"),
    ("base_timestamp", "BIGINT"),
    ("max_timestamp", "BIGINT"),
)
#: A task's first pieces have so many bytes, and later ones that part of what was packed before.
FIRST_PIECE_BYTES: Final = 64 * 1024
GROWTH_PARTS: Final = 8
#: Pieces that go to Python in one Arrow batch, which is what it costs to have many of them.
PIECES_PER_BATCH: Final = 4

#: Says how many rows an Arrow batch has; Spark's runners read it when a task makes them.
_ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

_JAVA: Final = r"""
public Object generate(Object[] references) {
  return new Packer(references);
}

final class Packer extends org.apache.spark.sql.execution.BufferedRowIterator {
  private static final int LARGEST_ARRAY = 2147483000;
  private final int value;
  private final int timestamp;
  private final boolean text;
  private final int limit;
  private final org.apache.spark.sql.execution.metric.SQLMetric written;
  private scala.collection.Iterator rows;
  /** The records of the piece that is being packed. */
  private byte[] section = new byte[4096];
  private int end;
  private int count;
  private long base;
  private long latest;
  /** For rows without a time. */
  private long now;
  /** Bytes of the pieces before. */
  private long packed;
  /** Of the task, until the first row is asked for. */
  private java.util.Properties settings;
  private String rowsBefore;

  public Packer(Object[] references) {
    value = ((Integer) references[0]).intValue();
    timestamp = ((Integer) references[1]).intValue();
    text = ((Boolean) references[2]).booleanValue();
    limit = ((Integer) references[3]).intValue();
    written = (org.apache.spark.sql.execution.metric.SQLMetric) references[4];
  }

  /** What comes next in the task is the writer's runner: of pieces, it takes few at a time. */
  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    rows = inputs[0];
    settings = org.apache.spark.TaskContext.get().getLocalProperties();
    rowsBefore = settings.getProperty("ROWS_SETTING");
    settings.setProperty("ROWS_SETTING", "PIECES_PER_BATCH");
  }

  protected void processNext() throws java.io.IOException {
    if (settings != null) restoreSettings();
    while (rows.hasNext()) {
      InternalRow row = (InternalRow) rows.next();
      boolean cut;
      if (row.isNullAt(value)) {
        cut = add(row, null, 0L, -1);
      } else if (row instanceof UnsafeRow) {
        UnsafeRow unsafe = (UnsafeRow) row;
        long place = unsafe.getLong(value);
        long offset = unsafe.getBaseOffset() + (place >>> 32);
        cut = add(row, unsafe.getBaseObject(), offset, (int) place);
      } else if (text) {
        UTF8String string = row.getUTF8String(value);
        cut = add(row, string.getBaseObject(), string.getBaseOffset(), string.numBytes());
      } else {
        byte[] bytes = row.getBinary(value);
        cut = add(row, bytes, (long) Platform.BYTE_ARRAY_OFFSET, bytes.length);
      }
      if (cut) return;
    }
    if (count > 0) give();
  }

  private void restoreSettings() {
    if (rowsBefore == null) settings.remove("ROWS_SETTING");
    else settings.setProperty("ROWS_SETTING", rowsBefore);
    settings = null;
  }

  /** Lays out one record; a length of -1 is null.  Whether a piece was cut before it. */
  private boolean add(InternalRow row, Object bytes, long offset, int length) {
    boolean timed = timestamp >= 0 && !row.isNullAt(timestamp);
    long time = timed ? Math.floorDiv(row.getLong(timestamp), 1000L) : now;
    long fixed = 4L + width(zigzag((long) length)) + Math.max(length, 0);
    long body = fixed + width(zigzag(time - base)) + width(zigzag((long) count)) - 1L;
    boolean cut = count > 0 && end + width(body << 1) + body > pieceBytes();
    if (cut) give();
    if (count == 0) {
      now = System.currentTimeMillis();
      if (!timed) time = now;
      base = time;
      latest = time;
      body = fixed + 1L;
    }
    if (time > latest) latest = time;
    reserve(end + width(body << 1) + body);
    putVarint(body << 1);
    section[end++] = 0;
    putVarint(zigzag(time - base));
    putVarint(zigzag((long) count));
    section[end++] = 1;
    putVarint(zigzag((long) length));
    if (length > 0) {
      Platform.copyMemory(bytes, offset, section, Platform.BYTE_ARRAY_OFFSET + end, length);
      end += length;
    }
    section[end++] = 0;
    count++;
    return cut;
  }

  private long pieceBytes() {
    return Math.min((long) limit, Math.max(FIRST_PIECE_BYTES, packed / GROWTH_PARTS));
  }

  private void give() {
    append(new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(new Object[] {
        java.util.Arrays.copyOf(section, end),
        Integer.valueOf(count), Long.valueOf(base), Long.valueOf(latest)}));
    written.add((long) count);
    packed += end;
    end = 0;
    count = 0;
  }

  private void reserve(long size) {
    if (size <= section.length) return;
    if (size > LARGEST_ARRAY) throw new IllegalStateException("a record has " + size + " bytes");
    long larger = Math.min((long) LARGEST_ARRAY, 2L * section.length);
    section = java.util.Arrays.copyOf(section, (int) Math.max(size, larger));
  }

  private void putVarint(long number) {
    while ((number & -128L) != 0L) {
      section[end++] = (byte) (number | 128L);
      number >>>= 7;
    }
    section[end++] = (byte) number;
  }

  private static long zigzag(long number) {
    return (number << 1) ^ (number >> 63);
  }

  /** Bytes of a varint. */
  private static int width(long number) {
    return (70 - Long.numberOfLeadingZeros(number | 1L)) / 7;
  }
}
"""


def packer_java() -> str:
    """What ``CodeGenerator.compile`` takes.

    Its references are: the places of the columns ``value`` and ``timestamp`` (-1: none), whether
    the value is a string, the bytes of records that a piece may have, and a metric of records.
    """
    named = {
        "ROWS_SETTING": _ROWS_SETTING,
        "PIECES_PER_BATCH": str(PIECES_PER_BATCH),
        "FIRST_PIECE_BYTES": f"{FIRST_PIECE_BYTES}L",
        "GROWTH_PARTS": str(GROWTH_PARTS),
    }
    return filled(_JAVA, named)
