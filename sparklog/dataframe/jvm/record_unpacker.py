"""Record batches -> Spark's rows, in Java.

Owns: the text of a class that Spark's executors compile as they compile code that Spark generates.
Must not know plans, or where the batches come from.

Its input has one column of bytes that matters.  An empty value says that the next one has bounds
(see ``BOUNDS``); every other is a piece of ``wire.plain_batches``.  What is held against what is as
in ``wire.columns_decode``, which gives the same rows.
"""

import struct
from typing import Final

from sparklog.dataframe.corrupt_batches import REMEDY

#: First offset, offset behind the last, partition; the name of the topic follows.
BOUNDS: Final = struct.Struct(">qqi")
#: What a partition of a scan gives, as its text says; no topic has such a name.
GIVE_ROWS: Final = "sparklog: give rows"
#: As long, so that the one can stand for the other in what was pickled.
GIVE_BATCHES: Final = "sparklog: batches !"
#: What a column of the output is, by its name; the order is that of ``fill``.
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

#: References: where the bytes are, the kinds of the columns of the output, a metric of its rows.
UNPACKER: Final = r"""
public Object generate(Object[] references) {
  return new Unpacker(references);
}

final class Unpacker extends org.apache.spark.sql.execution.BufferedRowIterator {
  private static final long MILLISECONDS_MAX = Long.MAX_VALUE / 1000L;

  private static final String SIZES = "the lengths of a batch's records do not add up to its size";

  private final int carrier;
  private final int[] kinds;
  private final org.apache.spark.sql.execution.metric.SQLMetric unpacked;
  private final org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter writer;
  private scala.collection.Iterator pieces;
  private boolean ready;
  private int given;

  private long first;
  private long behind;
  private int partition;
  private UTF8String topic;

  private byte[] data;
  private int at;
  private int pieceEnd;
  private int batchEnd;
  private int left;
  private long baseOffset;
  private long baseTimestamp;
  private boolean appendTime;

  private long offset;
  private long timestamp;
  private int keyStart;
  private int keyLength;
  private int valueStart;
  private int valueLength;

  public Unpacker(Object[] references) {
    carrier = ((Integer) references[0]).intValue();
    kinds = (int[]) references[1];
    unpacked = (org.apache.spark.sql.execution.metric.SQLMetric) references[2];
    writer = new org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter(
        kinds.length, 256);
  }

  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    pieces = inputs[0];
  }

  protected void processNext() {}

  public boolean hasNext() {
    if (ready) return true;
    try {
      ready = advance();
    } catch (ArrayIndexOutOfBoundsException error) {
      throw wrong("a record goes on out of bounds of its batch");
    }
    return ready;
  }

  public InternalRow next() {
    if (!hasNext()) throw new java.util.NoSuchElementException();
    ready = false;
    given++;
    fill();
    return writer.getRow();
  }

  /** Whether there is another record in the bounds: the fields say where. */
  private boolean advance() {
    while (true) {
      while (left > 0) {
        left--;
        readRecord();
        if (left == 0 && at != batchEnd) throw wrong(SIZES);
        if (offset >= first && offset < behind) return true;
      }
      unpacked.add(given);
      given = 0;
      if (at < pieceEnd) readHeader();
      else if (pieces.hasNext()) take((InternalRow) pieces.next());
      else return false;
    }
  }

  private void take(InternalRow row) {
    int start = 0;
    int size;
    if (row instanceof UnsafeRow && ((UnsafeRow) row).getBaseObject() instanceof byte[]) {
      UnsafeRow unsafe = (UnsafeRow) row;
      long where = unsafe.getLong(carrier);
      data = (byte[]) unsafe.getBaseObject();
      start = (int) (unsafe.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET + (where >>> 32));
      size = (int) where;
    } else {
      data = row.getBinary(carrier);
      size = data.length;
    }
    if (size == 0) {
      readBounds(((InternalRow) pieces.next()).getBinary(carrier));
    } else {
      if (topic == null) throw wrong("records came before their bounds");
      at = start;
      pieceEnd = start + size;
    }
  }

  private void readBounds(byte[] bounds) {
    java.nio.ByteBuffer fields = java.nio.ByteBuffer.wrap(bounds);
    first = fields.getLong();
    behind = fields.getLong();
    partition = fields.getInt();
    topic = UTF8String.fromBytes(bounds, fields.position(), fields.remaining());
  }

  private void readHeader() {
    java.nio.ByteBuffer header = java.nio.ByteBuffer.wrap(data);
    baseOffset = header.getLong(at);
    batchEnd = at + 12 + header.getInt(at + 8);
    appendTime = (header.getShort(at + 21) & 8) != 0;
    baseTimestamp = header.getLong(at + (appendTime ? 35 : 27));
    left = header.getInt(at + 57);
    at += 61;
    if (left < 0 || at > batchEnd || batchEnd > pieceEnd || (left == 0 && at != batchEnd))
      throw wrong("a batch at offset " + baseOffset + " says " + left + " records");
  }

  private void readRecord() {
    long length = readVarint(5);
    long end = at + length;
    if (length < 0L || end > batchEnd) throw wrong(SIZES);
    at++;
    timestamp = readVarint(10);
    offset = baseOffset + readVarint(5);
    keyLength = readLength(end);
    keyStart = at;
    at += Math.max(keyLength, 0);
    valueLength = readLength(end);
    valueStart = at;
    at += Math.max(valueLength, 0);
    long headers = readVarint(5);
    long room = end - at;
    if (headers < 0L || 2L * headers > room)
      throw wrong("a record says more headers than it has bytes for");
    if (headers == 0L && room != 0L) throw wrong("bytes are left over in a record");
    at = (int) end;
  }

  private int readLength(long end) {
    long length = readVarint(5);
    if (length < -1L) throw wrong("a field has a negative length");
    if (at + Math.max(length, 0L) > end) throw wrong("a field is longer than its record");
    return (int) length;
  }

  private long readVarint(int bytesMax) {
    byte octet = data[at++];
    if (octet >= 0) return (octet >>> 1) ^ -(octet & 1);
    long raw = octet & 127;
    int shift = 7;
    while (true) {
      if (shift == 7 * bytesMax) throw wrong("a varint is longer than " + bytesMax + " bytes");
      octet = data[at++];
      if (shift == 63 && (octet & 255) > 1) throw wrong("a varint exceeds 64 bits");
      raw |= (long) (octet & 127) << shift;
      if (octet >= 0) return (raw >>> 1) ^ -(raw & 1L);
      shift += 7;
    }
  }

  private void fill() {
    writer.reset();
    writer.zeroOutNullBytes();
    for (int i = 0; i < kinds.length; i++) {
      switch (kinds[i]) {
        case 0: writeBytes(i, keyStart, keyLength); break;
        case 1: writeBytes(i, valueStart, valueLength); break;
        case 2: writer.write(i, topic); break;
        case 3: writer.write(i, partition); break;
        case 4: writer.write(i, offset); break;
        case 5: writer.write(i, microseconds()); break;
        default: writer.write(i, appendTime ? 1 : 0);
      }
    }
  }

  private void writeBytes(int column, int start, int length) {
    if (length < 0) writer.setNullAt(column);
    else writer.write(column, data, start, length);
  }

  private long microseconds() {
    long milliseconds = appendTime ? baseTimestamp : baseTimestamp + timestamp;
    return Math.max(-MILLISECONDS_MAX, Math.min(MILLISECONDS_MAX, milliseconds)) * 1000L;
  }

  private RuntimeException wrong(String why) {
    return new IllegalStateException(topic + "-" + partition + ": records of the batch at offset "
        + baseOffset + " cannot be read: " + why + ". REMEDY");
  }
}
""".replace("REMEDY", REMEDY)
