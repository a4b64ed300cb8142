"""The packer: rows of Spark -> the records of Kafka's batches, inside the JVM.

Owns: the Java that lays records out, and its limits.  Must not know how it comes into a plan, nor
what becomes of the pieces (``piece_outlet``).

It is Java as Spark's generated code is, and travels as that does: as text, which every executor
compiles for itself.  So executors need no jar of ours.  It is a class for inside others: the code
that Spark generates for the steps below (``fused_packer``), or one that takes rows which some other
step has made (``packed_rows``).

A piece is the section of records of one batch: at most as many records as fit, or one larger one.
Pieces begin small, so that few rows spread over partitions as well, and grow with what the task has
written.  Rows without a time get that at which a piece was begun last.

Rows with a key belong to the partition that Java's producer chooses (``key_partition``), so there
is a section for each, and their sizes are bounded together.  Where nobody can say how many
partitions there are, pieces have rows of any key, for Python to divide.
"""

from typing import Final

from sparklog.dataframe.jvm.jvm_class import filled
from sparklog.dataframe.jvm.key_partition import key_partition_java
from sparklog.dataframe.jvm.piece_outlet import ANY_PARTITION, BY_KEY, piece_outlet_java

#: A task's first pieces have so many bytes, and later ones that part of what was packed before.
FIRST_PIECE_BYTES: Final = 64 * 1024
GROWTH_PARTS: Final = 8
#: What is being filled for partitions may have as many bytes as what is in flight, and so many.
FILLED_BYTES_MIN: Final = 1024 * 1024
#: Pieces that go to Python in one Arrow batch, which is what it costs to have many of them.
PIECES_PER_BATCH: Final = 4

#: Says how many rows an Arrow batch has; Spark's runners read it when a task makes them.
_ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

#: Classes for inside others.  What adds to a packer says whether rows for Python are there.
_PACKER_JAVA: Final = r"""
final class Section {
  /** As in the rows of PieceOutlet. */
  final int partition;
  byte[] bytes;
  int end;
  int count;
  long base;
  long latest;

  Section(int partition, byte[] bytes) {
    this.partition = partition;
    this.bytes = bytes;
  }
}

final class Packer {
  private static final int LARGEST_ARRAY = 2147483000;
  private static final int FIRST_ARRAY = 4096;
  /** Bytes of a record's length. */
  private static final int LENGTH_MAX = 5;
  private final int limit;
  private final boolean keyed;
  private final org.apache.spark.sql.execution.metric.SQLMetric written;
  private final PieceOutlet outlet;
  /** Of all rows, unless there are keys and partitions are known. */
  private final Section only;
  /** By partition, each from its first row on. */
  private Section[] sections;
  /** Where rows go whose key is null, until that section is cut. */
  private int sticky;
  /** Whether the outlet was asked for partitions. */
  private boolean asked;
  /** How many sections there are, and the bytes that each may have. */
  private int filling = 1;
  private long room;
  /** Bytes of their arrays together, and a bound. */
  private long filled = FIRST_ARRAY;
  private long filledMax = Long.MAX_VALUE;
  /** Of the next row. */
  private Object key;
  private long keyOffset;
  private int keyLength = -1;
  /** For rows without a time. */
  private long now;
  /** Bytes of the pieces before. */
  private long packed;
  /** Of the task, until the first row is asked for. */
  private java.util.Properties settings;
  private String rowsBefore;

  /** What comes next in the task is the writer's runner: of pieces, it takes few at a time. */
  public Packer(
      int limit, boolean keyed, org.apache.spark.sql.execution.metric.SQLMetric written,
      String[] destination) {
    this.limit = limit;
    this.keyed = keyed;
    this.written = written;
    outlet = new PieceOutlet(destination, org.apache.spark.TaskContext.get());
    only = new Section(keyed ? BY_KEY : ANY_PARTITION, new byte[FIRST_ARRAY]);
    setRoom();
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

  /** Of the row that is added next. */
  public void setKey(byte[] bytes) {
    key = bytes;
    keyOffset = Platform.BYTE_ARRAY_OFFSET;
    keyLength = bytes == null ? -1 : bytes.length;
  }

  public void setKey(UTF8String text) {
    key = text == null ? null : text.getBaseObject();
    keyOffset = text == null ? 0L : text.getBaseOffset();
    keyLength = text == null ? -1 : text.numBytes();
  }

  public boolean add(byte[] bytes, boolean timed, long micros) {
    int length = bytes == null ? -1 : bytes.length;
    return add(bytes, (long) Platform.BYTE_ARRAY_OFFSET, length, timed, micros);
  }

  public boolean add(UTF8String text, boolean timed, long micros) {
    if (text == null) return add((byte[]) null, timed, micros);
    return add(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), timed, micros);
  }

  /** Lays out one record, after it has cut a piece if need be; a length of -1 is null. */
  public boolean add(Object bytes, long offset, int length, boolean timed, long micros) {
    Section into = keyed ? sectionOfKey() : only;
    long time = timed ? Math.floorDiv(micros, 1000L) : now;
    long delta = zigzag(time - into.base);
    long number = (long) into.count << 1;
    long valueLength = zigzag((long) length);
    long keyWidth = zigzag((long) keyLength);
    long fixed = 2L + width(keyWidth) + Math.max(keyLength, 0)
        + width(valueLength) + Math.max(length, 0);
    long body = fixed + width(delta) + width(number);
    boolean cut = into.end + width(body << 1) + body > room;
    if (cut) cut(into);
    if (into.count == 0) {
      now = System.currentTimeMillis();
      if (!timed) time = now;
      into.base = time;
      into.latest = time;
      delta = 0L;
      number = 0L;
      body = fixed + 2L;
    }
    if (time > into.latest) into.latest = time;
    reserve(into, into.end + LENGTH_MAX + body);
    byte[] to = into.bytes;
    int at = putVarint(to, into.end, body << 1);
    to[at] = 0;
    at = putVarint(to, at + 1, delta);
    at = putVarint(to, at, number);
    at = put(key, keyOffset, keyLength, keyWidth, to, at);
    at = put(bytes, offset, length, valueLength, to, at);
    to[at] = 0;
    into.end = at + 1;
    into.count++;
    if (filled > filledMax) {
      cut = true;
      cutAll();
    }
    return cut && outlet.hasRows();
  }

  private Section sectionOfKey() {
    if (!asked) askForPartitions();
    if (sections == null) return only;
    int partition = keyLength < 0
        ? sticky : KeyPartition.of(key, keyOffset, keyLength, sections.length);
    Section found = sections[partition];
    if (found == null) {
      found = new Section(partition, new byte[0]);
      sections[partition] = found;
      filling++;
      setRoom();
    }
    return found;
  }

  private void askForPartitions() {
    asked = true;
    int count = outlet.partitions();
    if (count == 0) return;
    sections = new Section[count];
    sticky = java.util.concurrent.ThreadLocalRandom.current().nextInt(count);
    filledMax = Math.max(FILLED_BYTES_MIN, outlet.bytesMax());
  }

  /** Arrays may be twice as large. */
  private void setRoom() {
    long most = Math.min((long) limit, filledMax / 2L / filling);
    room = Math.min(most, Math.max(FIRST_PIECE_BYTES, packed / GROWTH_PARTS));
  }

  /** The records since the last piece become one. */
  private void cut(Section from) {
    if (from.count == 0) return;
    packed += from.end;
    written.add((long) from.count);
    setRoom();
    byte[] again =
        outlet.take(from.bytes, from.end, from.count, from.base, from.latest, from.partition);
    if (again == null) again = new byte[FIRST_ARRAY];
    filled += again.length - from.bytes.length;
    from.bytes = again;
    from.end = 0;
    from.count = 0;
    if (sections != null && from.partition == sticky) sticky = (sticky + 1) % sections.length;
  }

  /** And forgets the sections, so that none keeps an array that was for another time. */
  private void cutAll() {
    cut(only);
    for (int i = 0; sections != null && i < sections.length; i++) {
      if (sections[i] == null) continue;
      cut(sections[i]);
      filled -= sections[i].bytes.length;
      sections[i] = null;
    }
    filling = 1;
    setRoom();
  }

  /** After the last record. */
  public void finish() {
    cutAll();
    outlet.finish();
  }

  /** A row for Python; null: there are no more. */
  public InternalRow next() {
    return outlet.next();
  }

  private void reserve(Section into, long size) {
    if (size <= into.bytes.length) return;
    if (size > LARGEST_ARRAY) throw new IllegalStateException("a record has " + size + " bytes");
    long larger = Math.min((long) limit + LENGTH_MAX, 2L * into.bytes.length);
    filled -= into.bytes.length;
    into.bytes = java.util.Arrays.copyOf(into.bytes, (int) Math.max(size, larger));
    filled += into.bytes.length;
  }

  /** Where it ends.  A length of -1 is null. */
  private static int put(
      Object bytes, long offset, int length, long told, byte[] to, int at) {
    int start = putVarint(to, at, told);
    if (length > 0) copy(bytes, offset, to, start, length);
    return start + Math.max(length, 0);
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

    It is made of the bytes of records that a piece may have, whether rows have keys, a metric of
    records, and a destination (see ``piece_outlet``); in the task, before what takes its rows, and
    started before the first.
    """
    named = {
        "ROWS_SETTING": _ROWS_SETTING,
        "PIECES_PER_BATCH": str(PIECES_PER_BATCH),
        "FIRST_PIECE_BYTES": f"{FIRST_PIECE_BYTES}L",
        "FILLED_BYTES_MIN": f"{FILLED_BYTES_MIN}L",
        "GROWTH_PARTS": str(GROWTH_PARTS),
        "ANY_PARTITION": str(ANY_PARTITION),
        "BY_KEY": str(BY_KEY),
    }
    return filled(_PACKER_JAVA, named) + key_partition_java() + piece_outlet_java()
