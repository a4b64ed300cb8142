/*
 * The partition that Kafka's Java producer chooses for a key.
 *
 * Owns: murmur2 and the choice, as in org.apache.kafka.common.utils.Utils.
 * Must not know: rows, topics, Spark's planner.
 */
package sparklog.dataframe;

import org.apache.spark.unsafe.Platform;

final class KeyPartition {
  private static final boolean LITTLE_ENDIAN =
      java.nio.ByteOrder.nativeOrder() == java.nio.ByteOrder.LITTLE_ENDIAN;

  /** Returns the partition of a key of {@code length} bytes at {@code offset} of {@code key}. */
  static int of(Object key, long offset, int length, int partitions) {
    return (murmur2(key, offset, length) & Constants.POSITIVE) % partitions;
  }

  private static int murmur2(Object key, long offset, int length) {
    int hash = Constants.MURMUR2_SEED ^ length;
    long end = offset + (length & ~3);
    for (long at = offset; at < end; at += 4L) {
      int word = Platform.getInt(key, at);
      if (!LITTLE_ENDIAN) word = Integer.reverseBytes(word);
      word *= Constants.MURMUR2_M;
      word ^= word >>> 24;
      hash = hash * Constants.MURMUR2_M ^ word * Constants.MURMUR2_M;
    }
    int rest = length & 3;
    for (int i = rest - 1; i >= 0; i--) hash ^= (Platform.getByte(key, end + i) & 255) << 8 * i;
    if (rest > 0) hash *= Constants.MURMUR2_M;
    hash ^= hash >>> 13;
    hash *= Constants.MURMUR2_M;
    return hash ^ hash >>> 15;
  }
}
