"""Where Java's producer puts the rows of a key, computed inside the JVM.

Owns: the Java of murmur2 and of the partition (``org.apache.kafka.common.utils.Utils``).  Must not
know rows or topics.
"""

from typing import Final

from sparklog.client.partitioner import MURMUR2_M, MURMUR2_SEED, POSITIVE
from sparklog.dataframe.jvm.jvm_class import filled

_JAVA: Final = r"""
final class KeyPartition {
  private static final boolean LITTLE_ENDIAN =
      java.nio.ByteOrder.nativeOrder() == java.nio.ByteOrder.LITTLE_ENDIAN;

  static int of(Object key, long offset, int length, int partitions) {
    return (murmur2(key, offset, length) & POSITIVE) % partitions;
  }

  private static int murmur2(Object key, long offset, int length) {
    int hash = SEED ^ length;
    long end = offset + (length & ~3);
    for (long at = offset; at < end; at += 4L) {
      int word = Platform.getInt(key, at);
      if (!LITTLE_ENDIAN) word = Integer.reverseBytes(word);
      word *= MULTIPLIER;
      word ^= word >>> 24;
      hash = hash * MULTIPLIER ^ word * MULTIPLIER;
    }
    int rest = length & 3;
    for (int i = rest - 1; i >= 0; i--) hash ^= (Platform.getByte(key, end + i) & 255) << 8 * i;
    if (rest > 0) hash *= MULTIPLIER;
    hash ^= hash >>> 13;
    hash *= MULTIPLIER;
    return hash ^ hash >>> 15;
  }
}
"""


def key_partition_java() -> str:
    """The class ``KeyPartition``, for inside others."""
    named = {
        "POSITIVE": str(POSITIVE),
        "SEED": f"0x{MURMUR2_SEED:08x}",
        "MULTIPLIER": f"0x{MURMUR2_M:08x}",
    }
    return filled(_JAVA, named)
