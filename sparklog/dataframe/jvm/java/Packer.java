/*
 * The packer: rows of Spark become the records of Kafka's batches, inside the JVM.
 *
 * Owns: the layout of records (format 2), the division of records into pieces, and their limits.
 * Must not know: how the packer comes into a plan, what becomes of the pieces; Spark's planner.
 *
 * A piece is the records section of one batch: at most as many records as fit, or one larger
 * record.  Pieces begin small, so that few rows are spread over partitions as well, and grow with
 * what the task has written.  A row without a timestamp gets the time at which the latest piece was
 * begun.
 *
 * A row with a key belongs to the partition that Kafka's Java producer chooses (KeyPartition).  So
 * there is a section for each partition, and the sizes of all sections are bounded together.  Where
 * the number of partitions is not known, pieces have rows of any key, for Python to divide.
 *
 * Each method that adds a row returns whether there are rows for Python now.
 */
package sparklog.dataframe;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

final class Packer {
  private static final int LARGEST_ARRAY = 2147483000;
  private static final int FIRST_ARRAY = 4096;
  /** Bytes of the varint of a record's length, at most. */
  private static final int LENGTH_MAX = 5;
  /** A piece may have this part of the bytes that were packed before. */
  private static final int GROWTH_PARTS = 8;
  /** The number of rows in an Arrow batch.  Spark's runners read it when a task makes them. */
  private static final String ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch";
  /** Bytes of records that a piece may have. */
  private final int pieceBytesMax;
  /** Whether rows have keys. */
  private final boolean keyed;
  private final org.apache.spark.sql.execution.metric.SQLMetric recordsWritten;
  private final PieceOutlet outlet;
  /** The section of all rows, unless rows have keys and the partitions are known. */
  private final Section commonSection;
  /** By partition; null before the partition's first row. */
  private Section[] sections;
  /** The partition of rows without a key, until its section is cut. */
  private int stickyPartition;
  /** Whether the outlet was asked for the number of partitions. */
  private boolean hasAsked;
  /** How many sections there are, and the bytes that each of them may have. */
  private int sectionCount = 1;
  private long sectionBytesMax;
  /** Bytes of all sections' arrays, and the bound of that sum. */
  private long allocatedBytes = FIRST_ARRAY;
  private long allocatedBytesMax = Long.MAX_VALUE;
  /** The key of the next row; a length of -1 is null. */
  private Object key;
  private long keyOffset;
  private int keyLength = -1;
  /** The timestamp of rows without one, in milliseconds since 1970. */
  private long defaultTimestamp;
  /** Bytes of the pieces so far. */
  private long packedBytes;
  /** The task's local properties, and their ROWS_SETTING, until the first row is asked for. */
  private java.util.Properties properties;
  private String rowsBefore;

  /**
   * Made in the task, before the runner that takes its rows: that is the next one to read
   * ROWS_SETTING, and takes few pieces at a time.  The destination is that of PieceOutlet.
   */
  public Packer(
      int pieceBytesMax, boolean keyed,
      org.apache.spark.sql.execution.metric.SQLMetric recordsWritten, String[] destination) {
    this.pieceBytesMax = pieceBytesMax;
    this.keyed = keyed;
    this.recordsWritten = recordsWritten;
    outlet = new PieceOutlet(destination, org.apache.spark.TaskContext.get());
    int partition = keyed ? Constants.BY_KEY : Constants.ANY_PARTITION;
    commonSection = new Section(partition, new byte[FIRST_ARRAY]);
    setSectionBytesMax();
    properties = org.apache.spark.TaskContext.get().getLocalProperties();
    rowsBefore = properties.getProperty(ROWS_SETTING);
    properties.setProperty(ROWS_SETTING, String.valueOf(Constants.PIECES_PER_BATCH));
  }

  /** Restores ROWS_SETTING.  To be called before rows are asked for. */
  public void start() {
    if (properties == null) return;
    if (rowsBefore == null) properties.remove(ROWS_SETTING);
    else properties.setProperty(ROWS_SETTING, rowsBefore);
    properties = null;
  }

  /** Sets the key of the row that is added next. */
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

  public boolean add(byte[] bytes, boolean hasTimestamp, long micros) {
    int length = bytes == null ? -1 : bytes.length;
    return add(bytes, (long) Platform.BYTE_ARRAY_OFFSET, length, hasTimestamp, micros);
  }

  public boolean add(UTF8String text, boolean hasTimestamp, long micros) {
    if (text == null) return add((byte[]) null, hasTimestamp, micros);
    return add(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), hasTimestamp, micros);
  }

  /** Lays out one record, after cutting a piece if need be; a length of -1 is null. */
  public boolean add(Object bytes, long offset, int length, boolean hasTimestamp, long micros) {
    Section into = keyed ? sectionOfKey() : commonSection;
    long timestamp = hasTimestamp ? Math.floorDiv(micros, 1000L) : defaultTimestamp;
    long delta = zigzag(timestamp - into.baseTimestamp);
    long number = (long) into.recordCount << 1;
    long valueLength = zigzag((long) length);
    long keyWidth = zigzag((long) keyLength);
    long fixed = 2L + width(keyWidth) + Math.max(keyLength, 0)
        + width(valueLength) + Math.max(length, 0);
    long body = fixed + width(delta) + width(number);
    boolean cut = into.end + width(body << 1) + body > sectionBytesMax;
    if (cut) cut(into);
    if (into.recordCount == 0) {
      defaultTimestamp = System.currentTimeMillis();
      if (!hasTimestamp) timestamp = defaultTimestamp;
      into.baseTimestamp = timestamp;
      into.maxTimestamp = timestamp;
      delta = 0L;
      number = 0L;
      body = fixed + 2L;
    }
    if (timestamp > into.maxTimestamp) into.maxTimestamp = timestamp;
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
    into.recordCount++;
    if (allocatedBytes > allocatedBytesMax) {
      cut = true;
      cutAll();
    }
    return cut && outlet.hasRows();
  }

  private Section sectionOfKey() {
    if (!hasAsked) askForPartitions();
    if (sections == null) return commonSection;
    int partition = keyLength < 0
        ? stickyPartition : KeyPartition.of(key, keyOffset, keyLength, sections.length);
    Section found = sections[partition];
    if (found == null) {
      found = new Section(partition, new byte[0]);
      sections[partition] = found;
      sectionCount++;
      setSectionBytesMax();
    }
    return found;
  }

  private void askForPartitions() {
    hasAsked = true;
    int count = outlet.partitions();
    if (count == 0) return;
    sections = new Section[count];
    stickyPartition = java.util.concurrent.ThreadLocalRandom.current().nextInt(count);
    allocatedBytesMax = Math.max(Constants.ALLOCATED_BYTES_MIN, outlet.bytesMax());
  }

  /** Sets the bytes that a section may have; its array may be twice as large. */
  private void setSectionBytesMax() {
    long bytesMax = Math.min((long) pieceBytesMax, allocatedBytesMax / 2L / sectionCount);
    long grown = Math.max(Constants.FIRST_PIECE_BYTES, packedBytes / GROWTH_PARTS);
    sectionBytesMax = Math.min(bytesMax, grown);
  }

  /** Makes a piece of the section's records. */
  private void cut(Section from) {
    if (from.recordCount == 0) return;
    packedBytes += from.end;
    recordsWritten.add((long) from.recordCount);
    setSectionBytesMax();
    byte[] buffer = outlet.take(
        from.bytes, from.end, from.recordCount, from.baseTimestamp, from.maxTimestamp,
        from.partition);
    if (buffer == null) buffer = new byte[FIRST_ARRAY];
    allocatedBytes += buffer.length - from.bytes.length;
    from.bytes = buffer;
    from.end = 0;
    from.recordCount = 0;
    if (sections != null && from.partition == stickyPartition)
      stickyPartition = (stickyPartition + 1) % sections.length;
  }

  /** Cuts all sections and forgets them, so that no section keeps a large array unused. */
  private void cutAll() {
    cut(commonSection);
    for (int i = 0; sections != null && i < sections.length; i++) {
      if (sections[i] == null) continue;
      cut(sections[i]);
      allocatedBytes -= sections[i].bytes.length;
      sections[i] = null;
    }
    sectionCount = 1;
    setSectionBytesMax();
  }

  /** Ends the task's write.  To be called after the last record. */
  public void finish() {
    cutAll();
    outlet.finish();
  }

  /** The next row for Python; null if there is none for now. */
  public InternalRow next() {
    return outlet.next();
  }

  private void reserve(Section into, long size) {
    if (size <= into.bytes.length) return;
    if (size > LARGEST_ARRAY) throw new IllegalStateException("a record has " + size + " bytes");
    long larger = Math.min((long) pieceBytesMax + LENGTH_MAX, 2L * into.bytes.length);
    allocatedBytes -= into.bytes.length;
    into.bytes = java.util.Arrays.copyOf(into.bytes, (int) Math.max(size, larger));
    allocatedBytes += into.bytes.length;
  }

  /** Writes the varint {@code prefix} and the bytes, and returns where they end. */
  private static int put(
      Object bytes, long offset, int length, long prefix, byte[] to, int at) {
    int start = putVarint(to, at, prefix);
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

  /** Writes a varint, and returns where it ends.  Most of them have one byte or two. */
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

  /** How many bytes a varint has. */
  private static int width(long number) {
    if ((number >>> 7) == 0L) return 1;
    if ((number >>> 14) == 0L) return 2;
    return (70 - Long.numberOfLeadingZeros(number)) / 7;
  }
}
