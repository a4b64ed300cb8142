"""The packer: rows of Spark -> the records of Kafka's batches, inside the JVM.

Owns: the Java that lays records out, and its limits.  Must not know how it comes into a plan, nor
what becomes of the pieces (``piece_outlet``).

It is Java as Spark's generated code is, and travels as that does: as text, which every executor
compiles for itself.  So executors need no jar of ours.  It is a class for inside others: the code
that Spark generates for the steps below (``fused_packer``), or one that takes rows which some other
step has made.

A piece is the section of records of one batch: at most as many records as fit, or one larger one.
Pieces begin small, so that few rows spread over partitions as well, and grow with what the task has
written.  Rows without a time get that of their piece's first record.
"""

from typing import Final

from sparklog.dataframe.jvm_class import filled
from sparklog.dataframe.piece_outlet import piece_outlet_java

#: A task's first pieces have so many bytes, and later ones that part of what was packed before.
FIRST_PIECE_BYTES: Final = 64 * 1024
GROWTH_PARTS: Final = 8
#: Pieces that go to Python in one Arrow batch, which is what it costs to have many of them.
PIECES_PER_BATCH: Final = 4

#: Says how many rows an Arrow batch has; Spark's runners read it when a task makes them.
_ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

#: The step by itself, for rows that another step made.
_ROWS_JAVA: Final = r"""
public Object generate(Object[] references) {
  return new PackedRows(references);
}

final class PackedRows extends org.apache.spark.sql.execution.BufferedRowIterator {
  private final int value;
  private final int timestamp;
  private final boolean text;
  private final int limit;
  private final org.apache.spark.sql.execution.metric.SQLMetric written;
  private final String[] destination;
  private scala.collection.Iterator rows;
  private Packer packer;

  public PackedRows(Object[] references) {
    value = ((Integer) references[0]).intValue();
    timestamp = ((Integer) references[1]).intValue();
    text = ((Boolean) references[2]).booleanValue();
    limit = ((Integer) references[3]).intValue();
    written = (org.apache.spark.sql.execution.metric.SQLMetric) references[4];
    destination = (String[]) references[5];
  }

  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    rows = inputs[0];
    packer = new Packer(limit, written, destination);
  }

  protected void processNext() throws java.io.IOException {
    packer.start();
    while (rows.hasNext()) {
      InternalRow piece = add((InternalRow) rows.next());
      if (piece != null) {
        append(piece);
        return;
      }
    }
    InternalRow last = packer.last();
    if (last != null) append(last);
  }

  private InternalRow add(InternalRow row) {
    boolean timed = timestamp >= 0 && !row.isNullAt(timestamp);
    long micros = timed ? row.getLong(timestamp) : 0L;
    if (row.isNullAt(value)) return packer.add((byte[]) null, timed, micros);
    if (row instanceof UnsafeRow) {
      UnsafeRow unsafe = (UnsafeRow) row;
      long place = unsafe.getLong(value);
      long offset = unsafe.getBaseOffset() + (place >>> 32);
      return packer.add(unsafe.getBaseObject(), offset, (int) place, timed, micros);
    }
    if (text) return packer.add(row.getUTF8String(value), timed, micros);
    return packer.add(row.getBinary(value), timed, micros);
  }
}
"""

#: A class for inside others.  What may cut a piece gives a row for Python, or null.
_PACKER_JAVA: Final = r"""
final class Packer {
  private static final int LARGEST_ARRAY = 2147483000;
  private final int limit;
  private final org.apache.spark.sql.execution.metric.SQLMetric written;
  private final PieceOutlet outlet;
  /** The records of the piece that is being packed, which may have so many bytes. */
  private byte[] section = PieceOutlet.newBuffer();
  private long room;
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

  /** What comes next in the task is the writer's runner: of pieces, it takes few at a time. */
  public Packer(
      int limit, org.apache.spark.sql.execution.metric.SQLMetric written, String[] destination) {
    this.limit = limit;
    this.written = written;
    outlet = new PieceOutlet(destination, org.apache.spark.TaskContext.get());
    room = Math.min((long) limit, FIRST_PIECE_BYTES);
    settings = org.apache.spark.TaskContext.get().getLocalProperties();
    rowsBefore = settings.getProperty("ROWS_SETTING");
    settings.setProperty("ROWS_SETTING", "PIECES_PER_BATCH");
  }

  /** Before rows are asked for. */
  public void start() {
    if (settings == null) return;
    if (rowsBefore == null) settings.remove("ROWS_SETTING");
    else settings.setProperty("ROWS_SETTING", rowsBefore);
    settings = null;
  }

  public InternalRow add(byte[] bytes, boolean timed, long micros) {
    int length = bytes == null ? -1 : bytes.length;
    return add(bytes, (long) Platform.BYTE_ARRAY_OFFSET, length, timed, micros);
  }

  public InternalRow add(UTF8String text, boolean timed, long micros) {
    if (text == null) return add((byte[]) null, timed, micros);
    return add(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), timed, micros);
  }

  /** Lays out one record, after it has cut a piece if need be; a length of -1 is null. */
  public InternalRow add(Object bytes, long offset, int length, boolean timed, long micros) {
    long time = timed ? Math.floorDiv(micros, 1000L) : now;
    long delta = zigzag(time - base);
    long number = (long) count << 1;
    long valueLength = zigzag((long) length);
    long fixed = 3L + width(valueLength) + Math.max(length, 0);
    long body = fixed + width(delta) + width(number);
    InternalRow piece = null;
    if (end + width(body << 1) + body > room) piece = cut();
    if (count == 0) {
      now = System.currentTimeMillis();
      if (!timed) time = now;
      base = time;
      latest = time;
      delta = 0L;
      number = 0L;
      body = fixed + 2L;
    }
    if (time > latest) latest = time;
    reserve(end + 5L + body);
    byte[] to = section;
    int at = putVarint(to, end, body << 1);
    to[at] = 0;
    at = putVarint(to, at + 1, delta);
    at = putVarint(to, at, number);
    to[at] = 1;
    at = putVarint(to, at + 1, valueLength);
    if (length > 0) {
      copy(bytes, offset, to, at, length);
      at += length;
    }
    to[at] = 0;
    end = at + 1;
    count++;
    return piece;
  }

  /** The records since the last piece, if there are any, become one. */
  private InternalRow cut() {
    if (count > 0) {
      section = outlet.take(section, end, count, base, latest);
      written.add((long) count);
      packed += end;
      room = Math.min((long) limit, Math.max(FIRST_PIECE_BYTES, packed / GROWTH_PARTS));
      end = 0;
      count = 0;
    }
    return outlet.next();
  }

  /** After the last record, until it gives null. */
  public InternalRow last() {
    InternalRow row = cut();
    return row == null ? outlet.last() : row;
  }

  private void reserve(long size) {
    if (size <= section.length) return;
    if (size > LARGEST_ARRAY) throw new IllegalStateException("a record has " + size + " bytes");
    long larger = Math.min(limit + 5L, 2L * section.length);
    section = java.util.Arrays.copyOf(section, (int) Math.max(size, larger));
  }

  private static void copy(Object bytes, long offset, byte[] to, int at, int length) {
    if (bytes instanceof byte[]) {
      int from = (int) (offset - Platform.BYTE_ARRAY_OFFSET);
      System.arraycopy((byte[]) bytes, from, to, at, length);
    } else {
      Platform.copyMemory(bytes, offset, to, Platform.BYTE_ARRAY_OFFSET + at, length);
    }
  }

  /** Where it ends.  Most have one byte or two. */
  private static int putVarint(byte[] to, int at, long number) {
    if ((number >>> 7) == 0L) {
      to[at] = (byte) number;
      return at + 1;
    }
    to[at] = (byte) (number | 128L);
    if ((number >>> 14) == 0L) {
      to[at + 1] = (byte) (number >>> 7);
      return at + 2;
    }
    do {
      at++;
      number >>>= 7;
      to[at] = (byte) (number | 128L);
    } while ((number >>> 7) != 0L);
    to[at] = (byte) number;
    return at + 1;
  }

  private static long zigzag(long number) {
    return (number << 1) ^ (number >> 63);
  }

  /** Bytes of a varint. */
  private static int width(long number) {
    if ((number >>> 7) == 0L) return 1;
    if ((number >>> 14) == 0L) return 2;
    return (70 - Long.numberOfLeadingZeros(number)) / 7;
  }
}
"""


def packer_java() -> str:
    """The class ``Packer``, and those that it needs.

    It is made of the bytes of records that a piece may have, a metric of records, and a destination
    (see ``piece_outlet``); in the task, before what takes its rows, and started before the first.
    """
    named = {
        "ROWS_SETTING": _ROWS_SETTING,
        "PIECES_PER_BATCH": str(PIECES_PER_BATCH),
        "FIRST_PIECE_BYTES": f"{FIRST_PIECE_BYTES}L",
        "GROWTH_PARTS": str(GROWTH_PARTS),
    }
    return filled(_PACKER_JAVA, named) + piece_outlet_java()


def packed_rows_java() -> str:
    """What ``CodeGenerator.compile`` takes.

    Its references are: the places of the columns ``value`` and ``timestamp`` (-1: none), whether
    the value is a string, the bytes of records that a piece may have, a metric of records, and a
    destination (see ``piece_outlet``).
    """
    return _ROWS_JAVA + packer_java()
