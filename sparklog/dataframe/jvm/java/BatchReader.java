/*
 * The reader of the records of plain (not compressed) batches, one record after the other.
 *
 * Owns: the layout of batches and records (format 2), and the checks of malformed ones.
 * Must not know: where the batches come from, what becomes of the records; Spark.
 *
 * The checks are those of wire/records/columns_decode.py, which reads the same records.  The key
 * and the value of a record stay in the data: the reader says where they start and how long they
 * are.
 */
package sparklog.dataframe;

final class BatchReader {
  private static final String SIZES = "the lengths of a batch's records do not add up to its size";

  /** The wanted offsets: from the first one to the one behind the last. */
  private long firstOffset;
  private long endOffset;
  private int partition;
  private String topic;

  /** The batches that are read: {@code at} is where to go on. */
  byte[] data;
  private int at;
  private int end;

  /** The current batch: where it ends, how many records are left, and fields of its header. */
  private int batchEnd;
  private int left;
  private long baseOffset;
  private long baseTimestamp;
  boolean appendTime;

  /** The current record; a length of -1 is null. */
  long offset;
  private long timestampDelta;
  int keyStart;
  int keyLength;
  int valueStart;
  int valueLength;

  /** Sets the wanted offsets, and the partition that errors name. */
  void setBounds(String topic, int partition, long firstOffset, long endOffset) {
    this.topic = topic;
    this.partition = partition;
    this.firstOffset = firstOffset;
    this.endOffset = endOffset;
  }

  /** Sets the data that is read next: whole batches of {@code size} bytes in all. */
  void setData(byte[] data, int start, int size) {
    if (topic == null) throw malformed("records came before their bounds");
    this.data = data;
    at = start;
    end = start + size;
  }

  /** Moves on to the next wanted record of the batch; returns false if there is none. */
  boolean nextRecord() {
    while (left > 0) {
      left--;
      readRecord();
      if (left == 0 && at != batchEnd) throw malformed(SIZES);
      if (offset >= firstOffset && offset < endOffset) return true;
    }
    return false;
  }

  /** Moves on to the next batch of the data; returns false if there is none. */
  boolean nextBatch() {
    if (at >= end) return false;
    readHeader();
    return true;
  }

  /** The timestamp of the current record, in milliseconds since 1970. */
  long timestamp() {
    return appendTime ? baseTimestamp : baseTimestamp + timestampDelta;
  }

  /** Returns what to throw for a batch that cannot be read. */
  RuntimeException malformed(String why) {
    return new IllegalStateException(topic + "-" + partition + ": records of the batch at offset "
        + baseOffset + " cannot be read: " + why + ". " + Constants.REMEDY);
  }

  private void readHeader() {
    java.nio.ByteBuffer header = java.nio.ByteBuffer.wrap(data);
    baseOffset = header.getLong(at);
    batchEnd = at + Constants.LOG_OVERHEAD + header.getInt(at + 8);
    appendTime = (header.getShort(at + 21) & 8) != 0;
    baseTimestamp = header.getLong(at + (appendTime ? 35 : 27));
    left = header.getInt(at + 57);
    at += Constants.BATCH_OVERHEAD;
    if (left < 0 || at > batchEnd || batchEnd > end || (left == 0 && at != batchEnd))
      throw malformed("a batch at offset " + baseOffset + " says " + left + " records");
  }

  private void readRecord() {
    long length = readVarint(5);
    long recordEnd = at + length;
    if (length < 0L || recordEnd > batchEnd) throw malformed(SIZES);
    at++;
    timestampDelta = readVarint(10);
    offset = baseOffset + readVarint(5);
    keyLength = readLength(recordEnd);
    keyStart = at;
    at += Math.max(keyLength, 0);
    valueLength = readLength(recordEnd);
    valueStart = at;
    at += Math.max(valueLength, 0);
    long headers = readVarint(5);
    long room = recordEnd - at;
    if (headers < 0L || 2L * headers > room)
      throw malformed("a record says more headers than it has bytes for");
    if (headers == 0L && room != 0L) throw malformed("bytes are left over in a record");
    at = (int) recordEnd;
  }

  private int readLength(long recordEnd) {
    long length = readVarint(5);
    if (length < -1L) throw malformed("a field has a negative length");
    if (at + Math.max(length, 0L) > recordEnd)
      throw malformed("a field is longer than its record");
    return (int) length;
  }

  private long readVarint(int bytesMax) {
    byte octet = data[at++];
    if (octet >= 0) return (octet >>> 1) ^ -(octet & 1);
    long raw = octet & 127;
    int shift = 7;
    while (true) {
      if (shift == 7 * bytesMax) throw malformed("a varint is longer than " + bytesMax + " bytes");
      octet = data[at++];
      if (shift == 63 && (octet & 255) > 1) throw malformed("a varint exceeds 64 bits");
      raw |= (long) (octet & 127) << shift;
      if (octet >= 0) return (raw >>> 1) ^ -(raw & 1L);
      shift += 7;
    }
  }
}
